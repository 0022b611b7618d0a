//! The tables that were published with the five proposals on the kernel lists, beside which a
//! report shows what was measured. `published.md` has the tables.

use crate::harness::table::{Entry, Table};

/// One proposal, with the parts of a report that measure the same.
pub struct Proposal {
    /// Its place on the page.
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub parts: &'static [&'static str],
}

const PUBLISHED: &str = include_str!("published.md");

impl Proposal {
    /// The published tables.
    pub fn tables(&self) -> Vec<Table> {
        let sections = PUBLISHED.split("\n# ").skip(1);
        let of_name = |section: &&str| section.lines().next() == Some(self.name);
        let section = sections.into_iter().find(of_name).unwrap_or_default();
        section.split("\n## ").skip(1).map(table).collect()
    }
}

/// A table in Markdown, after its title and its source.
fn table(text: &str) -> Table {
    let (title, rest) = text.split_once('\n').unwrap_or_default();
    let source = rest.lines().find_map(|line| line.strip_prefix("> "));
    let rows = rest.lines().filter(|line| line.starts_with("| "));
    let mut rows = rows.map(|line| {
        let line = line.trim_matches('|');
        line.split('|')
            .map(|text| Entry::from(text.trim()))
            .collect()
    });
    let head: Vec<Entry> = rows.next().unwrap_or_default();
    Table {
        title: title.into(),
        source: source.map(str::to_owned),
        columns: head.into_iter().map(|entry| entry.text).collect(),
        rows: rows.collect(),
    }
}

/// All proposals, in the order of the page, and at the end the libraries of today.
pub const PROPOSALS: [Proposal; 6] = [
    Proposal {
        name: "preadv2",
        title: "preadv2 with RWF_NONBLOCK",
        about: "A read that is served from the page cache or fails at once lets a program with a pool \
                of threads serve cached reads in the caller.",
        parts: &["mix", "aio"],
    },
    Proposal {
        name: "buffered",
        title: "Asynchronous buffered reads",
        about: "A buffered read that misses the page cache goes on when its page is there, without a \
                thread that waits for it.",
        parts: &["randread"],
    },
    Proposal {
        name: "fincore",
        title: "fincore and preadv2",
        about: "To ask for residency and then to read costs less than to try, if most reads miss. The \
                proposal gave 30 % as the hit rate at which both cost the same.",
        parts: &["syscalls", "hitrate", "race"],
    },
    Proposal {
        name: "uring",
        title: "The io_uring interface",
        about: "Submission and completion in memory that the program shares with the kernel, beside \
                libaio and SPDK.",
        parts: &["iops", "ring"],
    },
    Proposal {
        name: "directories",
        title: "xgetdents and dirreadahead",
        about: "Entries and inodes of a directory, read in the order of the disk.",
        parts: &["dir", "seeks", "ahead", "ahead-data"],
    },
    Proposal {
        name: "today",
        title: "The libraries of today",
        about: "Contenders that programs use now, without a published table.",
        parts: &[
            "tools",
            "keep-cache",
            "cached",
            "mapped",
            "runtimes",
            "server",
            "server-cold",
            "object-store",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::part::PARTS;

    #[test]
    fn each_part_stands_in_one_section() {
        let mut of_proposals: Vec<_> = PROPOSALS
            .iter()
            .flat_map(|proposal| proposal.parts)
            .copied()
            .collect();
        let mut parts: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        of_proposals.sort_unstable();
        parts.sort_unstable();
        assert_eq!(of_proposals, parts);
    }

    #[test]
    fn published_rows_have_all_columns() {
        assert_eq!(PROPOSALS.iter().flat_map(Proposal::tables).count(), 9);
        for table in PROPOSALS.iter().flat_map(Proposal::tables) {
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.title);
            }
        }
    }
}
