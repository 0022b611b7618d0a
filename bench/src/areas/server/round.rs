//! The figures of one server in one round, and the turn that measures them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use serde::Serialize;

use super::Args;
use super::contender::Name;
use super::content::Kind;
use super::ground::Ground;
use super::load::Load;
use crate::harness::class::Class;
use crate::harness::percentiles::{Percentiles, histogram};
use crate::harness::tick::Tick;

/// One server in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub ops: u64,
    pub seconds: f64,
    /// Requests of all connections.
    pub ops_per_s: f64,
    pub mb_per_s: f64,
    /// Processor time of the server for one request, without that of the clients.
    pub cpu_us_per_op: f64,
    /// The lateness of the server's runtime for a timer; `None` of another process.
    pub tick_us: Option<Percentiles>,
    /// The requests of cached files and of files that are not cached.
    pub classes: BTreeMap<&'static str, Class>,
    /// True if each cold file was read once before the time was over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_early: bool,
    /// True if Ctrl-C ended the turn early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

/// One turn.
pub struct Turn<'a> {
    pub args: &'a Args,
    pub ground: &'a Ground,
    /// Connections of each kind.
    pub connections: [u32; 2],
    pub seed: u64,
    pub stop: &'a Stop,
}

impl Turn<'_> {
    /// Starts a server, makes the requests, and ends the server.
    pub fn take(&self, name: Name) -> Result<Round, Problem> {
        let server = name.start(self.args, self.ground);
        let server = server.map_err(|e| Problem::of(name.word(), e))?;
        let load = Load {
            address: server.address(),
            ground: self.ground,
            connections: self.connections,
            time: Duration::from_secs_f64(self.args.timed.seconds),
            seed: self.seed,
            stop: self.stop,
        };
        let used = Cell::new(0.0);
        let begin = || {
            server.tick().inspect(|tick| tick.begin());
            used.set(server.cpu());
        };
        let end = || {
            used.set(server.cpu() - used.get());
            server.tick().inspect(|tick| tick.end());
        };
        let seen = load.run(begin, end).map_err(|problem| match problem {
            Problem::Failed(why) => Problem::Failed(format!("{}: {why}", name.word())),
            other => other,
        })?;
        let used = server.without_clients(used.get(), seen.cpu);
        let seconds = seen.seconds;
        let all = Kind::ALL.into_iter().zip(seen.tapes);
        let classes: BTreeMap<_, _> = all
            .map(|(kind, tape)| (kind.word(), Class::of(tape, self.ground.size, seconds)))
            .filter(|(_, class)| class.ops > 0)
            .collect();
        let ops: u64 = classes.values().map(|class| class.ops).sum();
        Ok(Round {
            ops,
            seconds,
            ops_per_s: ops as f64 / seconds,
            mb_per_s: (ops * self.ground.size) as f64 / seconds / 1e6,
            cpu_us_per_op: 1e6 * used / ops.max(1) as f64,
            tick_us: server.tick().and_then(lateness),
            classes,
            is_early: seen.is_early,
            cut_short: self.stop.asked(),
        })
    }
}

fn lateness(tick: &Tick) -> Option<Percentiles> {
    let mut sum = histogram();
    tick.add_to(&mut sum);
    Percentiles::of(&sum)
}
