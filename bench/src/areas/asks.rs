//! `nowait-bench asks`: how long it takes to ask how much of many files, or of many ranges of a file, is in the page cache.
#![allow(unsafe_code, reason = "mincore(2) as a program calls it")]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use nowait_residency::{Answer, page_size, residency_of_files, residency_of_ranges};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::bench::{Bench, Group};
use crate::harness::cache::evict;
use crate::harness::contender::{Contenders, Fit, Named, Word};
use crate::harness::files::scratch;
use crate::harness::machine::Machine;
use crate::harness::round::Round;
use crate::harness::settings::Timed;
use crate::harness::usage::Usage;

/// How much of files is cached: nowait-residency beside open, mmap and mincore
///
/// Asks for the cached pages of many small files, and of 64 ranges of a large one. Half of the pages are cached, in runs of
/// 16. All contenders count the same pages.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("seconds", |a| a.default_value("0.5")))]
pub struct Args {
    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    timed: Timed,
}

pub const AFTER: &str = "\
The files are made in the current directory and removed at the end. Contenders take turns within each round, on the same
files. Ratios are taken within rounds.

JSON (--json): the shape of all areas (nowait-bench --help). An operation is the question about one file or one range.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait-residency: residency_of_files, residency_of_ranges
    Nowait,
    /// open(2), mmap(2), mincore(2), for each file or range
    Mincore,
    /// mincore(2), with one mapping of the large file for all ranges
    MincoreOnce,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self == Name::Nowait
    }
}

/// The files or the ranges whose residency contenders ask for.
enum Work {
    Files(Vec<PathBuf>),
    Ranges(PathBuf, Vec<Range<u64>>),
}

impl Work {
    /// Many files of this size.
    fn files(dir: &TempDir, count: usize, size: u64) -> Result<Work, Problem> {
        let path = |n: usize| dir.path().join(format!("{size}-{n}"));
        let paths: Vec<PathBuf> = (0..count).map(path).collect();
        for path in &paths {
            made(path, size)?;
        }
        Ok(Work::Files(paths))
    }

    /// 64 ranges of 256 KiB of a file of 64 MiB.
    fn ranges(dir: &TempDir) -> Result<Work, Problem> {
        let (path, each) = (dir.path().join("large"), 256 << 10);
        made(&path, 64 << 20)?;
        let ranges = (0..64).map(|n| n << 20..(n << 20) + each);
        Ok(Work::Ranges(path, ranges.collect()))
    }

    /// Asks about each once. Returns the number of cached pages, and that of questions.
    fn ask(&self, name: Name) -> Result<(u64, u64), Problem> {
        let failed = |e| Problem::of(name.word(), e);
        let mut sum = 0;
        let number = match (self, name) {
            (Work::Files(paths), Name::Nowait) => {
                for answer in residency_of_files(paths) {
                    sum += known(answer.map_err(|e| failed(e.into()))?)?.cached;
                }
                paths.len()
            }
            (Work::Ranges(path, ranges), Name::Nowait) => {
                let file = File::open(path).map_err(failed)?;
                let sums = residency_of_ranges(&file, ranges).map_err(|e| failed(e.into()))?;
                sum = known(sums)?.iter().map(|it| it.cached).sum();
                ranges.len()
            }
            (Work::Files(paths), _) => {
                for path in paths {
                    let file = File::open(path).map_err(failed)?;
                    let size = file.metadata().map_err(failed)?.len();
                    let whole = 0..size;
                    sum += mapped(&file, whole.clone(), std::slice::from_ref(&whole))
                        .map_err(failed)?;
                }
                paths.len()
            }
            (Work::Ranges(path, ranges), Name::Mincore) => {
                for range in ranges {
                    let file = File::open(path).map_err(failed)?;
                    sum += mapped(&file, range.clone(), std::slice::from_ref(range))
                        .map_err(failed)?;
                }
                ranges.len()
            }
            (Work::Ranges(path, ranges), Name::MincoreOnce) => {
                let file = File::open(path).map_err(failed)?;
                let size = file.metadata().map_err(failed)?.len();
                sum = mapped(&file, 0..size, ranges).map_err(failed)?;
                ranges.len()
            }
        };
        Ok((sum, number as u64))
    }
}

fn known<T>(answer: Answer<T>) -> Result<T, Problem> {
    match answer {
        Answer::Known { value, .. } => Ok(value),
        Answer::Unknown(reason) => Err(Problem::Failed(format!(
            "the residency is unknown: {reason}"
        ))),
    }
}

/// Makes a file with half of its pages cached.
fn made(path: &PathBuf, size: u64) -> Result<(), Problem> {
    let failed = |e| Problem::of(path.display(), e);
    let file = File::create_new(path).map_err(failed)?;
    file.write_all_at(&vec![7; size as usize], 0)
        .map_err(failed)?;
    file.sync_all().map_err(failed)?;
    drop(file);
    let file = File::open(path).map_err(failed)?;
    evict(std::slice::from_ref(&file))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)
        .map_err(|e| failed(e.into()))?;
    let run = 16 * page_size();
    let mut buffer = vec![0; run as usize];
    for start in (0..size).step_by(2 * run as usize) {
        file.read_at(&mut buffer, start).map_err(failed)?;
    }
    Ok(())
}

/// The cached pages of ranges by a mapping of `whole`.
fn mapped(file: &File, whole: Range<u64>, ranges: &[Range<u64>]) -> std::io::Result<u64> {
    use std::os::fd::AsRawFd;
    let len = (whole.end - whole.start) as usize;
    let mut sum = 0;
    // SAFETY: the mapping is not accessed, and the vector has a byte for each of its pages.
    unsafe {
        let (kind, fd, start) = (libc::MAP_SHARED, file.as_raw_fd(), whole.start as i64);
        let map = libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, kind, fd, start);
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        for range in ranges {
            let len = (range.end - range.start) as usize;
            let mut pages = vec![0u8; len.div_ceil(page_size() as usize)];
            let at = map.byte_add((range.start - whole.start) as usize);
            if libc::mincore(at, len, pages.as_mut_ptr()) == 0 {
                sum += pages.iter().filter(|page| **page & 1 == 1).count() as u64;
            }
        }
        libc::munmap(map, len);
    }
    Ok(sum)
}

/// The bytes of all files.
const NEED: u64 = (64 << 20) + 2000 * (4 << 10) + 500 * (256 << 10);

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::timed("asks", &args.timed, stop);
    let names = bench.choose(&args.contenders.names, |_| Fit::Yes)?;
    let dir = scratch(None, NEED, "go to a directory elsewhere")?;
    let machine = Machine::look(dir.path())?;
    let works = [
        // The columns of the tables are the contenders of the first.
        ("64 ranges of 256K of one file", Work::ranges(&dir)?),
        ("2,000 files of 4K", Work::files(&dir, 2000, 4 << 10)?),
        ("500 files of 256K", Work::files(&dir, 500, 256 << 10)?),
    ];
    let group = |(title, work): (&str, Work)| {
        let is_single = matches!(work, Work::Files(..));
        let fits = |name: &&Name| !(is_single && **name == Name::MincoreOnce);
        let names = names.iter().filter(fits).copied().collect();
        Group::new(title, json!({}), work, names)
    };
    let groups: Vec<_> = works.into_iter().map(group).collect();
    let cells = bench.play(&groups, |group, name: &Name, _| {
        let (expected, _) = group.work.ask(Name::Mincore)?;
        let before = Usage::of_self();
        let (begin, mut ops) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < args.timed.seconds && !bench.stop.asked() {
            let (sum, asked) = group.work.ask(*name)?;
            if sum != expected {
                bench.note(format!(
                    "{}: {sum} pages, not {expected}: pages were reclaimed",
                    name.word()
                ));
            }
            ops += asked;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let used = Usage::of_self() - before;
        Ok((ops > 0).then(|| Round::new(ops, 0, seconds, used)))
    })?;
    let settings = json!({
        "about": "half of the pages are cached, in runs of 16",
        "legend": "Medians over rounds. An operation is the question about one file or one range.",
    });
    let mut run = bench.run(machine, settings);
    let tables = [
        ("questions/s", "ops_per_s", 1.0),
        ("CPU us/question", "cpu_us_per_op", 1.0),
    ];
    run.add_by_figure(cells, &Name::Mincore.word(), &tables);
    bench.finish(run)
}
