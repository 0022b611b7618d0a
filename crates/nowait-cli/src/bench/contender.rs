//! What a bench compares: contenders, in cells within which they are beside each other.

use serde::Serialize;

use super::problem::Problem;
use super::round::Round;
use super::turn::Turn;

/// How a contender does its turn.
pub type Way = Box<dyn Fn(&Turn<'_>) -> Result<Round, Problem>>;

/// One contender in one cell.
pub struct Contender {
    /// A stable word.
    pub name: &'static str,
    pub way: Way,
}

/// Contenders that do the same thing: only these make ratios.
pub struct Cell {
    pub label: Label,
    pub contenders: Vec<Contender>,
    pub block: u64,
    pub threads: usize,
}

/// What tells a cell from the others of its bench; empty if there is but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Label {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
}

impl Label {
    /// For a key: `@4096x2`.
    pub fn suffix(&self) -> String {
        let block = self.block.map(|b| b.to_string()).unwrap_or_default();
        let threads = self.threads.map(|t| format!("x{t}")).unwrap_or_default();
        if block.is_empty() && threads.is_empty() {
            String::new()
        } else {
            format!("@{block}{threads}")
        }
    }
}

/// A list without what came before in it.
pub fn once_each<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in list {
        if !once.contains(item) {
            once.push(*item);
        }
    }
    once
}

/// Whether a contender can take part.
pub enum Fit {
    Yes,
    /// It can, but a reader should know this.
    With(String),
    /// It can't; what to do about it.
    No(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_cells() {
        let label = |block, threads| Label { block, threads }.suffix();
        assert_eq!(label(None, None), "");
        assert_eq!(label(Some(4096), Some(2)), "@4096x2");
    }
}
