//! The face of all areas: contenders take turns in groups, and each group becomes a cell of the
//! results.
//!
//! ```text
//!  options ─► Bench::new ─► choose contenders ─► prepare files ─► groups ─► Bench::play ─► cells ─► Bench::finish
//!                                                                             └ for each round, group and
//!                                                                               contender: the area's turn
//! ```

use std::cell::RefCell;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cell::{Cell, object};
use super::contender::{Contender, Fit, Word, once_each};
use super::machine::Machine;
use super::output::Output;
use super::run::Run;
use super::settings::Timed;

/// Contenders that do the same work.
pub struct Group<W, C> {
    /// The cell of the results, without contenders.
    pub cell: Cell,
    pub work: W,
    pub contenders: Vec<C>,
}

impl<W, C> Group<W, C> {
    /// `parameters` is an object.
    pub fn new(name: impl Into<String>, parameters: Value, work: W, contenders: Vec<C>) -> Self {
        Group {
            cell: Cell::new(name, parameters),
            work,
            contenders,
        }
    }

    /// Gives the tables of the group a title that is not its name.
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.cell.title = title.into();
        self
    }
}

/// A running measurement of an area.
pub struct Bench<'a> {
    area: &'static str,
    output: &'a Output,
    rounds: u32,
    /// The settings that all areas have.
    settings: Map<String, Value>,
    /// The settings that all areas have, in words.
    about: String,
    notes: RefCell<Vec<String>>,
    pub stop: Stop,
}

impl<'a> Bench<'a> {
    pub fn new(area: &'static str, output: &'a Output, rounds: u32, stop: Stop) -> Bench<'a> {
        let settings = json!({
            "rounds": rounds,
            "order": "contenders take turns within a round; each round begins with the next one",
            "interval": "order statistics of the paired ratios (sign test); see coverage",
        });
        Bench {
            area,
            output,
            rounds,
            settings: object(settings),
            about: format!("rounds: {rounds}"),
            notes: RefCell::default(),
            stop,
        }
    }

    /// A measurement of an area whose turns last a given time.
    pub fn timed(area: &'static str, timed: &'a Timed, stop: Stop) -> Bench<'a> {
        let mut bench = Bench::new(area, &timed.output, timed.rounds.count(), stop);
        let of_timed = json!({"seconds": timed.seconds, "seed": timed.rounds.seed});
        bench.settings.extend(object(of_timed));
        bench.about = format!("{} s a turn, {}", timed.seconds, bench.about);
        bench
    }

    /// Adds a note to the results, once.
    pub fn note(&self, note: impl Into<String>) {
        let (note, mut notes) = (note.into(), self.notes.borrow_mut());
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Adds a note, if there is one.
    pub fn note_some(&self, note: Option<String>) {
        note.into_iter().for_each(|note| self.note(note));
    }

    /// Returns the contenders that are available, and notes the others. `asked` has the contenders
    /// that the user has named: it is an error if one of them is not available. If the user has
    /// named none, all are tried.
    pub fn choose<N: ValueEnum + PartialEq + Copy>(
        &self,
        asked: &[N],
        fits: impl Fn(N) -> Fit,
    ) -> Result<Vec<N>, Problem> {
        let names = if asked.is_empty() {
            N::value_variants()
        } else {
            asked
        };
        let mut available = Vec::new();
        for name in once_each(names) {
            match fits(name) {
                Fit::Yes => {}
                Fit::With(note) => self.note(note),
                Fit::No(why) if !asked.is_empty() => return Err(Problem::Failed(why)),
                Fit::No(why) => {
                    self.note(format!("`{}` is left out: {why}", name.word()));
                    continue;
                }
            }
            available.push(name);
        }
        Ok(available)
    }

    /// Plays all rounds; each begins with the next contender. `turn` runs one contender in one
    /// round, and returns `None` if it has no figures. After Ctrl-C a turn that was cut short is
    /// left out, unless it is the only one.
    ///
    /// Returns the cells that have rounds or contenders that cannot take part.
    pub fn play<W, C: Contender, R: Serialize>(
        &self,
        groups: &[Group<W, C>],
        mut turn: impl FnMut(&Group<W, C>, &C, usize) -> Result<Option<R>, Problem>,
    ) -> Result<Vec<Cell>, Problem> {
        let turns: usize = groups.iter().map(|group| group.contenders.len()).sum();
        let mut progress = Progress::of_turns(turns as u64 * u64::from(self.rounds));
        let none = |group: &Group<W, C>| vec![Vec::new(); group.contenders.len()];
        let mut rounds: Vec<Vec<Vec<Value>>> = groups.iter().map(none).collect();
        let mut done = 0;
        'all: for number in 0..self.rounds as usize {
            for (group, rounds) in groups.iter().zip(&mut rounds) {
                let n = group.contenders.len();
                for i in (0..n).map(|i| (i + number) % n) {
                    let contender = &group.contenders[i];
                    let (name, cell) = (contender.name(), &group.cell.name);
                    progress.at(done, format!("round {}: {name} {cell}", number + 1));
                    done += 1;
                    let round = turn(group, contender, number)?;
                    if !self.stop.asked() || rounds[i].is_empty() {
                        rounds[i].extend(round.map(|round| json!(round)));
                    }
                    if self.stop.asked() {
                        break 'all;
                    }
                }
            }
        }
        let mut cells = Vec::new();
        for (group, rounds) in groups.iter().zip(rounds) {
            let mut cell = group.cell.clone();
            for (contender, rounds) in group.contenders.iter().zip(rounds) {
                cell.add(&contender.name(), contender.is_ours(), &rounds);
            }
            if !(cell.contenders.is_empty() && cell.absent.is_empty()) {
                cells.push(cell);
            }
        }
        Ok(cells)
    }

    /// A run without results. `settings` is an object with the settings of the area alone: "about",
    /// "cache" and "legend" in words, and others that are not in the command line.
    pub fn run(&self, machine: Machine, mut settings: Value) -> Run {
        let about = settings["about"].as_str().map(|about| format!("{about}, "));
        settings["about"] = json!(about.unwrap_or_default() + &self.about);
        let mut run = Run::new(self.area, machine, settings);
        run.settings.extend(self.settings.clone());
        run
    }

    /// Prints a run, and returns the exit code.
    pub fn finish(self, mut run: Run) -> Result<ExitCode, Problem> {
        run.interrupted = self.stop.asked();
        self.notes
            .into_inner()
            .into_iter()
            .for_each(|n| run.note(n));
        self.output.finish(&run)
    }
}
