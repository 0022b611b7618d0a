//! Contenders, and the cells in which they do the same work.

use std::fmt::Display;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::cache::Cache;
use super::offsets::Order;
use super::round::Round;
use super::turn::Turn;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;

/// The function that runs a turn of a contender.
pub type Way = Box<dyn Fn(&Turn<'_>) -> Result<Round, Problem>>;

/// One contender in one cell.
pub struct Contender {
    /// The name on the command line and in the results.
    pub name: &'static str,
    /// True for nowait.
    pub ours: bool,
    pub way: Way,
}

/// Contenders that do the same work. Ratios are taken within a cell.
pub struct Cell {
    pub label: Label,
    pub contenders: Vec<Contender>,
    pub block: u64,
    pub threads: usize,
    /// The state of the page cache and the order of the reads, if they differ from those of the plan.
    pub state: Option<(Cache, Order)>,
}

/// The parameters that differ between the cells of a plan; empty if there is one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Label {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<&'static str>,
    /// Percent of hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
}

impl Label {
    /// The name of the cell: `4096x2`, `4096-random-30`.
    pub fn name(&self) -> String {
        let block = self.block.map(|b| b.to_string()).unwrap_or_default();
        let threads = self.threads.map(|t| format!("x{t}")).unwrap_or_default();
        let order = self.order.map(|o| format!("-{o}")).unwrap_or_default();
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
        words.extend(self.order.map(|order| match self.rate {
            Some(rate) => format!("{order}, {rate} % hits"),
            None => order.into(),
        }));
        words.join(" ")
    }
}

/// A list without repeated items.
pub fn once_each<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in list {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// The availability of a contender.
pub enum Fit {
    Yes,
    /// Available, with a note for the report.
    With(String),
    /// Not available, with the reason and a remedy.
    No(String),
}

/// Returns if a program is installed. `package` is the Debian package that has it.
pub fn installed(program: &str, package: &str) -> Fit {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Fit::Yes,
        Err(_) => Fit::No(format!(
            "{program} is not installed: install the package `{package}` (apt-get install {package}), \
             or leave it out"
        )),
    }
}

/// Returns the contenders that are available, with notes on them. `asked` are those that the user has
/// named: one that is not available is an error. Without any, `default` are tried.
pub fn available<N: Copy + PartialEq, W: Display>(
    asked: &[N],
    default: &[N],
    word: impl Fn(N) -> W,
    fits: impl Fn(N) -> Fit,
    notes: &mut Vec<String>,
) -> Result<Vec<N>, Problem> {
    let names = match asked {
        [] => default.to_vec(),
        names => once_each(names),
    };
    let mut available = Vec::new();
    for name in names {
        match fits(name) {
            Fit::Yes => available.push(name),
            Fit::With(note) => {
                notes.push(note);
                available.push(name);
            }
            Fit::No(why) if !asked.is_empty() => return Err(Problem::Failed(why)),
            Fit::No(why) => notes.push(format!("`{}` is left out: {why}", word(name))),
        }
    }
    Ok(available)
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
            order: Some("random"),
            rate: Some(30),
            ..threads
        };
        assert_eq!(rates.name(), "4096-random-30");
        assert_eq!(rates.title(), "4K random, 30 % hits");
    }
}
