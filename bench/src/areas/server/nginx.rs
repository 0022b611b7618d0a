//! nginx with `aio threads`, as a child with its own configuration and directory.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nowait_cli::proc;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::content::{API, API_ANSWER};
use crate::harness::contender::Fit;

/// The time in which it must start, and end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// A running nginx. Dropping it ends it.
pub struct Nginx {
    pub address: SocketAddr,
    master: Child,
    /// Its configuration, logs and temporary files.
    prefix: TempDir,
}

/// Returns true if both programs start: nginx, and setpriv(1), which has nginx end with this
/// process.
pub fn fits() -> Fit {
    let is_there = |program: &str, argument: &str| {
        let mut command = command(program);
        command.arg(argument).stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok()
    };
    for (program, argument, package) in [
        ("nginx", "-v", "nginx"),
        ("setpriv", "--version", "util-linux"),
    ] {
        if !is_there(program, argument) {
            return Fit::No(format!(
                "it needs the program {program}: install Debian's package {package}"
            ));
        }
    }
    Fit::Yes
}

/// A command. A user's PATH may lack the directory of nginx.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    if let Some(path) = std::env::var_os("PATH") {
        let mut path = path;
        path.push(":/usr/sbin");
        command.env("PATH", path);
    }
    command
}

impl Nginx {
    /// Starts nginx with this many workers on the files in `root`.
    pub fn start(root: &Path, threads: usize) -> io::Result<Nginx> {
        let prefix = tempfile::Builder::new()
            .prefix("nowait-bench-nginx-")
            .tempdir()?;
        // The port is free now. If another process takes it before nginx does, nginx fails.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let file = prefix.path().join("nginx.conf");
        fs::write(&file, configuration(root, threads, address)?)?;
        let master = command("setpriv")
            .args(["--pdeathsig", "TERM", "nginx", "-e", "error.log", "-p"])
            .arg(prefix.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut nginx = Nginx {
            address,
            master,
            prefix,
        };
        nginx.wait_for_start()?;
        Ok(nginx)
    }

    fn wait_for_start(&mut self) -> io::Result<()> {
        let late = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.master.try_wait()?;
            if ended.is_some() || Instant::now() > late {
                let log = fs::read_to_string(self.prefix.path().join("error.log"));
                let log = log.unwrap_or_default();
                let why = log.lines().next().unwrap_or("it has written no log");
                return Err(io::Error::other(format!("nginx does not start: {why}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Seconds of processor time that the master and its workers have used.
    pub fn cpu(&self) -> f64 {
        let master = self.master.id();
        let children = proc::read(format!("/proc/{master}/task/{master}/children"));
        let children = String::from_utf8_lossy(&children).into_owned();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        children.chain([master]).map(cpu_of).sum()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.master), Signal::TERM);
        let late = Instant::now() + PATIENCE;
        while matches!(self.master.try_wait(), Ok(None)) {
            if Instant::now() > late {
                let _ = self.master.kill();
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Seconds of processor time of a process, from /proc/PID/stat; 0 if it has ended.
fn cpu_of(id: u32) -> f64 {
    let stat = proc::read(format!("/proc/{id}/stat"));
    let stat = String::from_utf8_lossy(&stat);
    // The name of the program is in parentheses and may have blanks. utime and stime are the fields
    // 14 and 15.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// The configuration. Everything that nginx writes is below its prefix.
fn configuration(root: &Path, threads: usize, address: SocketAddr) -> io::Result<String> {
    let root = root
        .to_str()
        .filter(|root| !root.contains(['"', '\\', '$']));
    let root = root.ok_or_else(|| {
        io::Error::other(
            "nginx cannot have this directory: its path has \", \\ or $, or is not UTF-8",
        )
    })?;
    let mut text = String::new();
    if rustix::process::geteuid().is_root() {
        // Other users may not read the files.
        text.push_str("user root root;\n");
    }
    let _ = write!(
        text,
        "daemon off;
worker_processes {threads};
pid nginx.pid;
error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000000;
    sendfile on;
    aio threads;
    server {{
        listen {address};
        root \"{root}\";
        location = {API} {{ return 200 {API_ANSWER}; }}
    }}
}}
"
    );
    Ok(text)
}
