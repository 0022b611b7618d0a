//! The figures of one server in one round, and the turn that measures them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use serde::Serialize;

use super::contender::Name;
use super::ground::Ground;
use super::load::{Class as Connections, Load, Seen};
use super::running::Server;
use crate::harness::class::Class;
use crate::harness::contender::Word;
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
    /// The requests of cached files, of files that are not cached, and those that need no file.
    pub classes: BTreeMap<&'static str, Class>,
    /// With `--paced`: the p99 of the hot and the API requests beside the cold ones, divided by
    /// that beside as many requests for cached files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub p99_beside_cold: BTreeMap<&'static str, f64>,
    /// True if each cold file was read once before the time was over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_early: bool,
    /// True if Ctrl-C ended the turn early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

/// One turn.
pub struct Turn<'a> {
    pub ground: &'a Ground,
    /// Threads of the server.
    pub threads: usize,
    pub time: Duration,
    /// Measures once more, with cached files in place of the cold ones.
    pub is_paced: bool,
    /// Connections of each class.
    pub connections: [u32; 3],
    pub seed: u64,
    pub stop: &'a Stop,
}

impl Turn<'_> {
    /// Measures a server.
    pub fn take(&self, name: Name) -> Result<Round, Problem> {
        let mut round = self.serve(name, None)?;
        if let (true, Some(cold)) = (self.is_paced, round.classes.get("cold"))
            && !self.stop.asked()
        {
            let paced = self.serve(name, Some(cold.ops as f64 / round.seconds))?;
            for class in [Connections::Hot, Connections::Api].map(Connections::word) {
                let p99 = |round: &Round| Some(round.classes.get(class)?.lat_us?.p99);
                if let (Some(cold), Some(paced)) = (p99(&round), p99(&paced)) {
                    round.p99_beside_cold.insert(class, cold / paced);
                }
            }
        }
        Ok(round)
    }

    /// Starts a server, makes the requests, and ends the server.
    fn serve(&self, name: Name, pace: Option<f64>) -> Result<Round, Problem> {
        let server = Server::start(name, &self.ground.root, self.threads);
        let server = server.map_err(|e| Problem::of(name.word(), e))?;
        let load = Load {
            address: server.address(),
            ground: self.ground,
            connections: self.connections,
            pace,
            time: self.time,
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
        Ok(self.round(seen, used, server.tick().and_then(lateness)))
    }

    fn round(&self, seen: Seen, used: f64, tick_us: Option<Percentiles>) -> Round {
        let seconds = seen.seconds;
        // The API's responses have no file.
        let size = |class| match class {
            Connections::Api => 0,
            _ => self.ground.size,
        };
        let all = Connections::ALL.into_iter().zip(seen.tapes);
        let classes: BTreeMap<_, _> = all
            .map(|(class, tape)| (class.word(), Class::of(tape, size(class), seconds)))
            .filter(|(_, class)| class.ops > 0)
            .collect();
        let ops: u64 = classes.values().map(|class| class.ops).sum();
        let of_api = classes.get("api").map_or(0, |class| class.ops);
        Round {
            ops,
            seconds,
            ops_per_s: ops as f64 / seconds,
            mb_per_s: ((ops - of_api) * self.ground.size) as f64 / seconds / 1e6,
            cpu_us_per_op: 1e6 * used / ops.max(1) as f64,
            tick_us,
            classes,
            p99_beside_cold: BTreeMap::new(),
            is_early: seen.is_early,
            cut_short: self.stop.asked(),
        }
    }
}

fn lateness(tick: &Tick) -> Option<Percentiles> {
    let mut sum = histogram();
    tick.add_to(&mut sum);
    Percentiles::of(&sum)
}
