//! A measurement of contenders that read the same files.
//!
//! ```text
//!  options ─► plan: groups ─► files: found or made ─► rounds ─► report
//!                                 │ for each round, group and contender: a turn
//!                                 └─ prepare the page cache ─ play(turn) ─ Round
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use hdrhistogram::Histogram;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde::Serialize;
use serde_json::{Value, json};

use super::bench::{Bench, Group};
use super::cache::Cache;
use super::cell::Cell;
use super::contender::{Contender, once_each};
use super::files::Files;
use super::machine::Machine;
use super::offsets::Order;
use super::percentiles::histogram;
use super::plot::Chart;
use super::round::Round;
use super::run::Run;
use super::settings::{Amount, Common};
use super::turn::Turn;
use super::view::View;

/// The work of a group: reads of blocks.
pub struct Work {
    pub label: Label,
    pub block: u64,
    pub threads: usize,
    /// The state of the page cache and the order of the reads, if they differ from those of the
    /// plan.
    pub state: Option<(Cache, Order)>,
}

impl Work {
    /// The work of the only group: reads by one thread.
    pub fn only(block: u64) -> Work {
        Work {
            label: Label::default(),
            block,
            threads: 1,
            state: None,
        }
    }

    /// Reads of blocks of one of several sizes by one of several numbers of threads.
    pub fn new(block: u64, threads: u32) -> Work {
        let threads = threads as usize;
        Work {
            label: Label {
                block: Some(block),
                threads: Some(threads),
                ..Label::default()
            },
            threads,
            ..Work::only(block)
        }
    }
}

/// The parameters that differ between the cells of a plan; empty if there is one cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Label {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Percent of hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

impl Label {
    /// The name of the cell: `4096x2`, `4096-random-30`.
    pub fn name(&self) -> String {
        let block = self.block.map(|b| b.to_string()).unwrap_or_default();
        let threads = self.threads.map(|t| format!("x{t}")).unwrap_or_default();
        let order = self
            .order
            .as_ref()
            .map(|o| format!("-{o}"))
            .unwrap_or_default();
        let rate = self.rate.map(|r| format!("-{r}")).unwrap_or_default();
        block + &threads + &order + &rate
    }

    /// The title of its table: `4K x 2 threads`, `4K random, 30 % hits`.
    pub fn title(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.block.map(|block| Size(block).to_string()));
        words.extend(self.threads.map(|threads| match threads {
            1 => "x 1 thread".into(),
            more => format!("x {more} threads"),
        }));
        words.extend(self.order.as_ref().map(|order| match self.rate {
            Some(rate) => format!("{order}, {rate} % hits"),
            None => order.clone(),
        }));
        words.join(" ")
    }
}

/// The plan of one measurement.
pub struct Plan<'a, N> {
    pub bench: Bench<'a>,
    pub common: &'a Common,
    /// The share of each file in the size.
    pub shares: Vec<u64>,
    pub cache: Cache,
    pub order: Order,
    /// One read in this many is timed.
    pub timed: u64,
    pub groups: Vec<Group<Work, N>>,
    /// The base of the ratios is the first of these that takes part, or else the first contender.
    pub bases: &'static [&'static str],
    pub views: &'static [View],
    /// Makes the charts of one cell.
    pub charts: Option<fn(&Cell, &Machine) -> Vec<Chart>>,
}

/// The results of a plan, before they are printed.
pub struct Measured {
    pub run: Run,
    pub files: Files,
    /// The latencies of each contender and class of a mix.
    pub latencies: BTreeMap<(String, &'static str), Histogram<u64>>,
}

impl<'a, N: Contender> Plan<'a, N> {
    /// A plan of cold reads of one file, without groups.
    pub fn new(area: &'static str, common: &'a Common, stop: Stop) -> Plan<'a, N> {
        Plan {
            bench: Bench::new(area, &common.output, common.rounds.count(), stop),
            common,
            shares: vec![1],
            cache: Cache::Cold,
            order: Order::Once,
            timed: 1,
            groups: Vec::new(),
            bases: &[],
            views: &[],
            charts: None,
        }
    }

    /// Adds a group, unless it has no contenders.
    pub fn add(&mut self, work: Work, contenders: Vec<N>) {
        if !contenders.is_empty() {
            let (label, parameters) = (work.label.clone(), json!(work.label));
            let group = Group::new(label.name(), parameters, work, contenders);
            self.groups.push(group.titled(label.title()));
        }
    }

    /// Measures the plan and prints the results. `play` runs a turn of a contender.
    pub fn conduct(
        self,
        play: impl Fn(&N, &Turn<'_>, &Work) -> Result<Round, Problem>,
    ) -> Result<ExitCode, Problem> {
        let measured = self.measure(play)?;
        self.bench.finish(measured.run)
    }

    /// Measures the plan.
    pub fn measure(
        &self,
        play: impl Fn(&N, &Turn<'_>, &Work) -> Result<Round, Problem>,
    ) -> Result<Measured, Problem> {
        self.check_memory()?;
        if self.common.file.is_none() {
            // Checks the size before it makes a file that is too small.
            self.check_ops(self.common.size.0 / self.shares.len() as u64)?;
        }
        let file = (self.common.file.as_deref(), self.common.size);
        let files = Files::prepare(file, &self.shares, self.largest(), &self.bench.stop)?;
        self.check_ops(files.sizes[0])?;
        let machine = Machine::look(&files.paths[0])?;
        let (cache, _) = self.state(&self.groups[0].work);
        self.bench.note_some(cache.begin(&files)?);
        let mut latencies = BTreeMap::new();
        let cells = self.bench.play(&self.groups, |group, name, number| {
            let play = |turn: &Turn<'_>| play(name, turn, &group.work);
            let round = self.turn(&files, &group.work, play, number)?;
            for (class, figures) in round.iter().flat_map(|round| &round.classes) {
                let key = (name.name(), *class);
                let all: &mut Histogram<u64> = latencies.entry(key).or_insert_with(histogram);
                // An error is not possible: both histograms have the same bounds.
                let _ = all.add(&figures.latency);
            }
            Ok(round)
        })?;
        if cells.is_empty() {
            return Err(Problem::Interrupted);
        }
        let mut run = self.bench.run(machine, self.settings(&files));
        cells
            .into_iter()
            .for_each(|cell| self.report(cell, &mut run));
        Ok(Measured {
            run,
            files,
            latencies,
        })
    }

    /// Runs one turn; `None` if it is interrupted before it begins, and if it reads nothing.
    fn turn(
        &self,
        files: &Files,
        work: &Work,
        play: impl Fn(&Turn<'_>) -> Result<Round, Problem>,
        number: usize,
    ) -> Result<Option<Round>, Problem> {
        let (cache, order) = self.state(work);
        let turn = Turn {
            files,
            block: work.block,
            depth: self.common.depth as usize,
            threads: work.threads,
            amount: self.common.amount(),
            order,
            timed: self.timed,
            seed: self.common.rounds.seed_of(number),
            stop: &self.bench.stop,
        };
        self.bench.note_some(cache.prepare(&turn)?);
        if self.bench.stop.asked() {
            return Ok(None);
        }
        let round = play(&turn);
        // Of a truncated file, a contender has errors or wrong figures.
        files.check()?;
        let round = round?;
        self.bench.note_some(early(&turn, &round));
        Ok((round.ops > 0).then_some(round))
    }

    /// Adds a cell, with its tables and charts.
    fn report(&self, mut cell: Cell, run: &mut Run) {
        let figures = View::compared(&cell);
        let figures: Vec<&str> = figures.iter().map(String::as_str).collect();
        let bases = self
            .views
            .iter()
            .map(|view| view.base(&cell, self.bases).to_owned());
        let bases: Vec<String> = bases.collect();
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        cell.compare(&figures, &bases);
        let tables = self.views.iter();
        run.tables
            .extend(tables.filter_map(|view| view.table(&cell, self.bases)));
        if let Some(charts) = self.charts {
            run.charts.extend(charts(&cell, &run.machine));
        }
        run.cells.push(cell);
    }

    /// The state of the page cache for a group, and the order of its reads.
    fn state(&self, work: &Work) -> (Cache, Order) {
        work.state.unwrap_or((self.cache, self.order))
    }

    /// The sizes of the blocks.
    fn blocks(&self) -> Vec<u64> {
        let blocks: Vec<u64> = self.groups.iter().map(|group| group.work.block).collect();
        once_each(&blocks)
    }

    fn largest(&self) -> u64 {
        self.blocks().into_iter().max().unwrap_or(1)
    }

    /// Checks that the buffers of all reads in flight fit into memory.
    fn check_memory(&self) -> Result<(), Problem> {
        let depth = u64::from(self.common.depth);
        for Work { block, threads, .. } in self.groups.iter().map(|group| &group.work) {
            if *block > 1 << 30 || block * depth * *threads as u64 > 8 << 30 {
                return Err(Problem::Usage(format!(
                    "blocks of {} at --depth {depth} need too much memory for buffers (8G at most)",
                    Size(*block)
                )));
            }
        }
        Ok(())
    }

    /// Checks that a plan that reads each block once does not ask for more reads than blocks.
    fn check_ops(&self, each: u64) -> Result<(), Problem> {
        let most = each / self.largest() * self.shares.len() as u64;
        match self.common.amount() {
            Amount::Ops(ops) if self.order.once() && ops > most => Err(Problem::Usage(format!(
                "--ops {ops}, but there are {most} blocks, and each is read at most once: choose fewer \
                 --ops, a larger --size or a larger --file"
            ))),
            _ => Ok(()),
        }
    }

    fn settings(&self, files: &Files) -> Value {
        let common = self.common;
        let (ops, amount) = match common.amount() {
            Amount::Ops(ops) => (Some(ops), format!("{ops} reads")),
            Amount::Seconds(seconds) => (None, format!("{seconds} s")),
        };
        let blocks = self.blocks();
        let words: Vec<String> = blocks.iter().map(|b| Size(*b).to_string()).collect();
        json!({
            "about": format!(
                "reads of {} in {} in {} file{}, depth {}, {amount} a turn",
                words.join(", "),
                Size(files.total()),
                files.paths.len(),
                if files.paths.len() == 1 { "" } else { "s" },
                common.depth,
            ),
            "files": files,
            "size": files.total(),
            "block": blocks,
            "depth": common.depth,
            "ops": ops,
            "cache": self.state(&self.groups[0].work).0.how(),
            "seed": common.rounds.seed,
            "timed": format!("1 read in {}", self.timed),
            "legend": "Medians over rounds; us: microseconds; stall99: 99 % of the calls that promise \
                       not to block kept their caller no longer (of a blocking call: the call); cs: \
                       context switches.",
        })
    }
}

/// A note if a turn has read the whole file before its time was over.
fn early(turn: &Turn<'_>, round: &Round) -> Option<String> {
    let ran_out = match (turn.order, turn.amount) {
        (Order::Once | Order::Rising, Amount::Seconds(_)) => round.ops >= turn.blocks(),
        (Order::Mix(_), Amount::Seconds(seconds)) => round.seconds < seconds && !round.cut_short,
        (Order::Mix(_), Amount::Ops(ops)) => round.ops < ops && !round.cut_short,
        _ => false,
    };
    ran_out.then(|| {
        "a turn ended early, when each block of a file had been read once: a larger --size (or \
         --file) makes it longer"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_cells() {
        assert_eq!(Label::default().name(), "");
        let threads = Label {
            block: Some(4096),
            threads: Some(2),
            ..Label::default()
        };
        assert_eq!(threads.name(), "4096x2");
        assert_eq!(threads.title(), "4K x 2 threads");
        let rates = Label {
            threads: None,
            order: Some("random".into()),
            rate: Some(30),
            ..threads
        };
        assert_eq!(rates.name(), "4096-random-30");
        assert_eq!(rates.title(), "4K random, 30 % hits");
    }
}
