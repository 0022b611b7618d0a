//! `nowait-bench container`: another verb in the environment of a container.
//!
//! ```text
//! container ─► unshare --mount ─► mount an overlayfs, enter it ─► container-inside ─► the verb
//!                                 a control group with a quota    a seccomp filter
//! ```

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nowait_cli::problem::Problem;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Measures in the environment of a container
///
/// Runs a verb of this program, such as `runtimes`, in a directory on an overlayfs (a mount namespace), with
/// the system calls of io_uring denied, as by the default profile of Docker, and with 2 processors by the quota of a
/// control group. Needs root.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The directory in which the directories of the overlayfs are made. They are removed at the end
    #[arg(long, value_name = "DIR", default_value = "target")]
    upper: PathBuf,

    /// The verb, with its options. Paths are relative to the overlayfs
    #[arg(
        value_name = "VERB",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    verb: Vec<OsString>,
}

/// The verb that runs within.
#[derive(Clone, Debug, clap::Args)]
pub struct Inside {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    verb: Vec<OsString>,
}

/// The text after the help.
pub const AFTER: &str = "\
Example: nowait-bench container -- runtimes --file data --size 256M --cells cached,cold

The exit code is that of the verb.";

/// The processors that the quota allows.
const PROCESSORS: u32 = 2;
/// The period of the quota in microseconds, as Docker sets it.
const PERIOD: u32 = 100_000;

/// Makes the environment, runs the verb and removes the environment.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let directory = tempfile::Builder::new()
        .prefix("nowait-container-")
        .tempdir_in(&args.upper)
        .map_err(|e| Problem::of(args.upper.display(), e))?;
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(directory.path().join(name)).map_err(|e| Problem::of(name, e))?;
    }
    let quota = Quota::new();
    if let Err(why) = &quota {
        eprintln!("nowait-bench: no quota of processors: {why}");
    }
    let program = std::env::current_exe().map_err(|e| Problem::of("this program", e))?;
    // The verb may be ended by a signal of the terminal, which this process gets, too.
    let script = r#"
        trap : INT
        [ -z "$GROUP" ] || echo $$ > "$GROUP/cgroup.procs"
        cd "$OVERLAY"
        mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
        cd merged
        exec "$@""#;
    let group = quota.as_ref().map(|quota| quota.0.as_path());
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-e", "-c", script, "sh"])
        .arg(program)
        .args(["container-inside", "--"])
        .args(&args.verb)
        .env("OVERLAY", absolute(directory.path())?)
        .env("GROUP", group.unwrap_or(Path::new("")))
        .status()
        .map_err(|e| Problem::of("unshare", e))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Installs the filter and becomes the verb.
pub fn run_inside(args: &Inside) -> Result<ExitCode, Problem> {
    let failed = |e: &dyn std::fmt::Display| Problem::Failed(format!("seccomp: {e}"));
    let filter = filter().map_err(|e| failed(&e))?;
    seccompiler::apply_filter(&filter).map_err(|e| failed(&e))?;
    let program = std::env::current_exe().map_err(|e| Problem::of("this program", e))?;
    let error = Command::new(&program).args(&args.verb).exec();
    Err(Problem::of(program.display(), error))
}

/// Denies the system calls of io_uring with EPERM, as Docker's default profile does.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let denied = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    let rules = denied.map(|call| (call, Vec::new())).into();
    let errno = libc::EPERM.cast_unsigned();
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

fn absolute(path: &Path) -> Result<PathBuf, Problem> {
    std::path::absolute(path).map_err(|e| Problem::of(path.display(), e))
}

/// A control group with a quota of processors. Dropping it removes the group.
struct Quota(PathBuf);

impl Quota {
    /// Makes the group, in version 1 or 2.
    fn new() -> io::Result<Quota> {
        let quota = PROCESSORS * PERIOD;
        let first = [
            ("cpu.cfs_period_us", PERIOD.to_string()),
            ("cpu.cfs_quota_us", quota.to_string()),
        ];
        let second = [("cpu.max", format!("{quota} {PERIOD}"))];
        Quota::make("/sys/fs/cgroup/cpu", &first)
            .or_else(|_| Quota::make("/sys/fs/cgroup", &second))
    }

    fn make(root: &str, settings: &[(&str, String)]) -> io::Result<Quota> {
        let path = Path::new(root).join(format!("nowait-container-{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Quota(path);
        for (name, value) in settings {
            // The open fails if the directory is no control group, and thus has no file of this
            // name.
            let mut file = fs::File::options().write(true).open(group.0.join(name))?;
            file.write_all(value.as_bytes())?;
        }
        Ok(group)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel may count a process for a moment after wait(2) has returned.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}
