//! An installed tree of the library, and programs that are built from it by pkg-config(1).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use test_support::limit::ended;

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command, which must succeed. Returns its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The library, linked and installed as `make install` does it.
pub struct Installed(PathBuf);

impl Installed {
    /// The tree of this test program. It is made at the first call.
    pub fn tree() -> &'static Installed {
        static TREE: OnceLock<Installed> = OnceLock::new();
        TREE.get_or_init(|| {
            // A static value is not dropped, so the next run removes the tree.
            let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nowait-capi");
            let _ = std::fs::remove_dir_all(&prefix);
            let (lib, include) = (prefix.join("lib"), prefix.join("include"));
            let link = root().join("scripts/link-c.sh");
            run(Command::new(link).arg(archive()).arg(&lib).arg(&prefix));
            std::fs::create_dir_all(lib.join("pkgconfig")).unwrap();
            for name in ["nowait.pc", "nowait-static.pc"] {
                std::fs::rename(lib.join(name), lib.join("pkgconfig").join(name)).unwrap();
            }
            std::fs::create_dir_all(&include).unwrap();
            let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/nowait.h");
            std::fs::copy(header, include.join("nowait.h")).unwrap();
            Installed(prefix)
        })
    }

    pub fn lib(&self) -> PathBuf {
        self.0.join("lib")
    }

    /// The flags for the compiler and the linker, from pkg-config.
    pub fn flags(&self, linking: Linking) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        command.args(["--cflags", "--libs"]);
        let flags = run(command.arg(match linking {
            Linking::Shared => "nowait",
            Linking::Static => "nowait-static",
        }));
        flags.split_whitespace().map(str::to_owned).collect()
    }
}

/// The way in which a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    Shared,
    Static,
}

/// The static library that was built with this test.
pub fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let archives = std::fs::read_dir(deps).unwrap().map(|entry| entry.unwrap());
    let archives = archives.filter(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with("libnowait_capi") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds libnowait_capi.a").path()
}

/// A directory for one test, which is removed with it.
pub fn scratch() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("nowait-capi-");
    builder.tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A compiled program.
pub struct Program {
    pub path: PathBuf,
    directory: tempfile::TempDir,
}

impl Program {
    /// Compiles a source file against the installed library.
    pub fn compile(compiler: &[&str], source: &Path, linking: Linking) -> Program {
        let directory = scratch();
        let path = directory.path().join("program");
        let tree = Installed::tree();
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).arg("-o").args([&path, source]);
        command.args(tree.flags(linking));
        if linking == Linking::Shared {
            command.arg(format!("-Wl,-rpath,{}", tree.lib().display()));
        }
        run(&mut command);
        Program { path, directory }
    }

    /// A command that runs the program in its own directory.
    pub fn command(&self) -> Command {
        self.wrapped(&[])
    }

    /// A command that runs it below another program, such as valgrind(1).
    pub fn wrapped(&self, wrapper: &[&str]) -> Command {
        let mut command = match wrapper {
            [] => Command::new(&self.path),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.path);
                command
            }
        };
        command
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// The names of its cases.
    pub fn cases(&self) -> Vec<String> {
        run(&mut self.command())
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Runs a command that must succeed, and kills it if it hangs.
pub fn run_to_end(command: &mut Command) -> Result<(), String> {
    let log = tempfile::tempfile().unwrap();
    command
        .stdout(log.try_clone().unwrap())
        .stderr(log.try_clone().unwrap());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let status = match ended(&mut child) {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(why) => why,
    };
    use std::io::{Read, Seek};
    let (mut log, mut said) = (log, Vec::new());
    log.rewind().unwrap();
    log.read_to_end(&mut said).unwrap();
    Err(format!(
        "{command:?}: {status}\n{}",
        String::from_utf8_lossy(&said)
    ))
}
