//! Runs a row under valgrind and under strace, with two numbers of operations. The difference of the
//! counts, divided by the difference of the numbers, is the cost of one operation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use slowdisk::{Filesystem, SlowDisk, TestMount};

use crate::callgrind::Profile;
use crate::data::{BLOCK, BLOCKS, Failure};
use crate::rows::{Data, Row};
use crate::table::{Cost, FIRST_THREAD, OTHER_THREADS, Toolchain};

/// The kernel may reclaim the pages of a cached file. Its row is then measured again.
const ATTEMPTS: usize = 5;
/// The latency of the disk of rows that miss.
const LATENCY: Duration = Duration::from_millis(1);

/// The files that rows read, and the directory for what the tools write.
pub struct Bench {
    program: PathBuf,
    aio: PathBuf,
    dir: tempfile::TempDir,
    overlay: Result<TestMount, String>,
    slow: Result<(SlowDisk, TestMount), String>,
}

impl Bench {
    /// Makes the files in a new directory below `dir`.
    pub fn new(dir: &Path) -> Result<Bench, Failure> {
        let program = std::env::current_exe()?;
        let dir = tempfile::tempdir_in(dir)?;
        fill(&dir.path().join("data"))?;
        Ok(Bench {
            aio: program.with_file_name("deps/libnowait_aio.so"),
            program,
            dir,
            overlay: mounted(|| Filesystem::Ext4.available(), mount_overlay),
            slow: mounted(slowdisk::available, mount_slow),
        })
    }

    /// Returns what is missing for a row.
    pub fn missing(&self, row: &Row) -> Option<String> {
        let unmade = match row.data {
            Data::Overlay => self.overlay.as_ref().err(),
            Data::Cold => self.slow.as_ref().err(),
            Data::Cached => None,
        };
        let unbuilt = row.preload && !self.aio.exists();
        unmade
            .cloned()
            .or_else(|| unbuilt.then(|| format!("{} is missing", self.aio.display())))
    }

    /// The costs of an operation: all, and those of the first thread and of the others, if the others
    /// have a part in it.
    pub fn cost(&self, row: &Row) -> Result<Vec<(String, Cost)>, Failure> {
        let mut attempt = 1;
        loop {
            match self.attempt(row) {
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
                ok => return ok,
            }
        }
    }

    fn attempt(&self, row: &Row) -> Result<Vec<(String, Cost)>, Failure> {
        let [short, long] = row.lengths();
        let [a, b] = [self.profile(row, short)?, self.profile(row, long)?];
        let calls = [
            self.system_calls(row, short)?,
            self.system_calls(row, long)?,
        ];
        let operations = (long - short) as f64;
        let each = |from: u64, to: u64| (to as f64 - from as f64) / operations;
        let cost = |a: Profile, b: Profile, calls: [u64; 2]| Cost {
            instructions: each(a.instructions, b.instructions),
            system_calls: each(calls[0], calls[1]),
            allocations: each(a.allocations, b.allocations),
            clock_reads: each(a.clock_reads, b.clock_reads),
        };
        let total = cost(a[0].and(a[1]), b[0].and(b[1]), calls);
        let others = cost(a[1], b[1], [0; 2]);
        let mut costs = vec![(row.name.to_owned(), total.rounded())];
        if others.instructions >= 1.0 {
            let first = cost(a[0], b[0], [0; 2]);
            costs.push((format!("{}{FIRST_THREAD}", row.name), first.rounded()));
            costs.push((format!("{}{OTHER_THREADS}", row.name), others.rounded()));
        }
        Ok(costs)
    }

    fn file(&self, row: &Row) -> PathBuf {
        let dir = match (row.data, &self.overlay, &self.slow) {
            (Data::Overlay, Ok(mount), _) | (Data::Cold, _, Ok((_, mount))) => mount.path(),
            _ => self.dir.path(),
        };
        dir.join("data")
    }

    /// The instructions of the first thread, and of the others.
    fn profile(&self, row: &Row, count: usize) -> Result<[Profile; 2], Failure> {
        let out = self.dir.path().join("callgrind");
        for entry in fs::read_dir(self.dir.path())? {
            let path = entry?.path();
            if path.extension().is_none() && path.file_name().is_some_and(|name| name != "data") {
                fs::remove_file(path)?;
            }
        }
        let mut command = limited("valgrind");
        command.args([
            "--quiet",
            "--tool=callgrind",
            "--separate-threads=yes",
            "--fair-sched=yes",
        ]);
        command.arg(format!("--callgrind-out-file={}", out.display()));
        self.run(command, row, count)?;
        Profile::of_threads(&out)
    }

    fn system_calls(&self, row: &Row, count: usize) -> Result<u64, Failure> {
        let out = self.dir.path().join("strace.txt");
        let mut command = limited("strace");
        command
            .args(["-f", "-c", "-U", "calls,name", "-o"])
            .arg(&out);
        self.run(command, row, count)?;
        total_calls(&fs::read_to_string(&out)?)
    }

    /// Runs a row below a tool.
    fn run(&self, mut tool: Command, row: &Row, count: usize) -> Result<(), Failure> {
        tool.arg(&self.program)
            .args([row.name, &count.to_string()])
            .arg(self.file(row));
        tool.envs(row.environment.iter().copied());
        // The variant of a function of the C library, such as memcpy, depends on the processor. All have
        // SSE2. Symbols are bound at the start, and not at the first call.
        tool.env(
            "GLIBC_TUNABLES",
            "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM",
        );
        tool.env("LD_BIND_NOW", "1");
        if row.preload {
            tool.env("LD_PRELOAD", &self.aio);
        }
        let output = tool.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("{}: {text}", output.status).into());
        }
        Ok(())
    }
}

/// A command that is ended if it takes longer than a minute: timeout(1).
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60", program]);
    command
}

/// The number of the line "total" of `strace -c -U calls,name`.
fn total_calls(text: &str) -> Result<u64, Failure> {
    let total = text.lines().find_map(|line| line.strip_suffix("total"));
    Ok(total.ok_or("strace has printed no total")?.trim().parse()?)
}

/// Writes the file that rows read.
fn fill(path: &Path) -> Result<(), Failure> {
    fs::write(path, vec![1u8; BLOCK * BLOCKS])?;
    // Dirty pages would not be evicted.
    fs::File::open(path)?.sync_all()?;
    Ok(())
}

/// The mount, or the reason why there is none.
fn mounted<T>(
    available: impl FnOnce() -> Result<(), slowdisk::Missing>,
    mount: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, String> {
    available().map_err(|missing| missing.to_string())?;
    mount().map_err(|error| error.to_string())
}

fn mount_overlay() -> Result<TestMount, Failure> {
    let base = TestMount::new(Filesystem::Ext4)?;
    fs::create_dir_all(base.path().join("lower"))?;
    fill(&base.path().join("lower/data"))?;
    Ok(TestMount::overlay(base)?)
}

fn mount_slow() -> Result<(SlowDisk, TestMount), Failure> {
    let disk = SlowDisk::builder().latency(LATENCY).build()?;
    let mount = TestMount::on(&disk, Filesystem::Ext4)?;
    let speed = disk.full_speed();
    fill(&mount.path().join("data"))?;
    drop(speed);
    Ok((disk, mount))
}

/// Returns what is missing to measure at all.
pub fn missing_tool() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the table has the instructions of x86-64".to_owned());
    }
    let tools = [("valgrind", "--version"), ("strace", "--version")];
    let missing = tools
        .iter()
        .find(|(name, version)| first_line(name, version).is_err());
    missing.map(|(name, _)| format!("{name} is missing (Debian package {name})"))
}

/// The versions on which the counts depend.
pub fn toolchain() -> Result<Toolchain, Failure> {
    Ok(Toolchain {
        rustc: first_line("rustc", "--version")?,
        glibc: first_line("getconf", "GNU_LIBC_VERSION")?,
        valgrind: first_line("valgrind", "--version")?,
    })
}

fn first_line(program: &str, argument: &str) -> Result<String, Failure> {
    let output = Command::new(program).arg(argument).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_total_of_strace_is_found() {
        let text = "    calls syscall\n--------- ------\n       12 pread64\n        3 futex\n       15 total\n";
        assert_eq!(super::total_calls(text).unwrap(), 15);
        assert!(super::total_calls("").is_err());
    }
}
