//! `nowait-bench mapped`: the cost of a read of a mapped file.

use clap::ValueEnum;
use serde::Serialize;

use crate::contenders::{blocking, mapped};
use crate::harness::cache::Cache;
use crate::harness::contender::{Cell, Contender, Label, Way, once_each};
use crate::harness::offsets::Order;
use crate::harness::plan::Plan;
use crate::harness::settings::{Common, check_blocks};
use crate::harness::view::View;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;

/// Mapped files: copies and borrowed bytes of a file that is in the page cache
///
/// Copies go into the same buffer again and again. Borrowed bytes are summed up, as numbers of 8 bytes,
/// 1024 times for each place that is drawn. All of the file is mapped before a turn begins, and that is not
/// timed.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("size", |a| a.default_value("16M")),
          mut_arg("seconds", |a| a.default_value("0.2")))]
pub struct Args {
    #[command(flatten)]
    pub common: Common,

    /// The sizes of copies; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values = ["512", "4K"])]
    pub copy: Vec<Size>,

    /// The sizes of borrowed ranges, multiples of 8; each is measured
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_values = ["8", "4K"])]
    pub borrow: Vec<Size>,

    /// How many threads read at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["1", "2"],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Vec<u32>,

    /// The contenders
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["pread", "preadv2", "memmap2", "compio", "nowait", "mapping"])]
    pub contenders: Vec<Name>,
}

/// The contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// pread(2)
    Pread,
    /// preadv2(2) with RWF_NOWAIT, by system call
    Preadv2,
    /// memmap2: a slice of an ordinary mapping
    Memmap2,
    /// compio: a read by io_uring
    Compio,
    /// nowait's blocking call on the file
    Nowait,
    /// nowait's `Mapping`
    Mapping,
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Name::Pread => "pread",
            Name::Preadv2 => "preadv2",
            Name::Memmap2 => "memmap2",
            Name::Compio => "compio",
            Name::Nowait => "nowait",
            Name::Mapping => "mapping",
        }
    }

    fn copies(self) -> Option<Way> {
        Some(match self {
            Name::Pread => Box::new(blocking::pread),
            Name::Preadv2 => Box::new(blocking::preadv2),
            Name::Memmap2 => Box::new(mapped::copy_memmap2),
            Name::Compio => Box::new(mapped::copy_compio),
            Name::Nowait => Box::new(blocking::nowait),
            Name::Mapping => Box::new(mapped::copy),
        })
    }

    fn borrows(self) -> Option<Way> {
        match self {
            Name::Memmap2 => Some(Box::new(mapped::borrow_memmap2)),
            Name::Mapping => Some(Box::new(mapped::borrow)),
            Name::Pread | Name::Preadv2 | Name::Compio | Name::Nowait => None,
        }
    }
}

impl Args {
    /// The plan of the measurement.
    pub fn plan(&self) -> Result<Plan<'_>, Problem> {
        let most = self.threads.iter().max().copied().unwrap_or(1);
        check_blocks(&self.copy, most)?;
        if let Some(size) = self.borrow.iter().find(|size| size.0 % 8 != 0) {
            return Err(Problem::Usage(format!(
                "--borrow {size} is no multiple of 8"
            )));
        }
        let mut cells = Vec::new();
        let mut add = |sizes: &[Size], how, way: fn(Name) -> Option<Way>| {
            for Size(block) in once_each(sizes) {
                for threads in once_each(&self.threads) {
                    let names = once_each(&self.contenders).into_iter();
                    let contenders = names.filter_map(|name| {
                        Some(Contender {
                            name: name.word(),
                            ours: matches!(name, Name::Nowait | Name::Mapping),
                            way: way(name)?,
                        })
                    });
                    cells.push(Cell {
                        label: Label {
                            block: Some(block),
                            threads: Some(threads as usize),
                            order: Some(how),
                            ..Label::default()
                        },
                        contenders: contenders.collect(),
                        block,
                        threads: threads as usize,
                        state: None,
                    });
                }
            }
        };
        add(&self.copy, "copied", Name::copies);
        add(&self.borrow, "borrowed", Name::borrows);
        cells.retain(|cell| !cell.contenders.is_empty());
        let sizes = self.copy.iter().chain(&self.borrow);
        Ok(Plan {
            bench: "mapped",
            common: &self.common,
            shares: vec![1],
            blocks: sizes.map(|size| size.0).collect(),
            cache: Cache::Warm,
            order: Order::Any,
            timed: 64,
            cells,
            bases: &["pread", "memmap2"],
            views: &[View::MEMORY],
            charts: None,
            notes: Vec::new(),
        })
    }
}
