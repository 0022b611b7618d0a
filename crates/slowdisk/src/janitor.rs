//! The janitor: a shell that outlives this process and does the clean-ups that the process could
//! not do.
//!
//! A clean-up is registered before its object is made, and removed after the object was undone in
//! the ordinary way. The process reports both to the shell through a pipe. When the process ends
//! for any reason, the pipe is closed, and the shell runs the remaining clean-ups, newest first.
//!
//! The write end of the pipe is held by a thread with its own descriptor table. The process's table
//! stays open while one of its threads is in uninterruptible I/O, and that may be I/O that only the
//! clean-up can end. A forked child would also keep a copy of the process's table.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::error::{Doing, Error, Result};
use crate::missing;
use crate::sys;

const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT PIPE TSTP
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
owner=$1 todo= nl='
'
# -c: the path is not canonicalized, because stat(2) fails on a FUSE mount without a server.
# -f ends the requests of a FUSE mount without a server.
unmount() { umount -c "$1" || umount -c -f -l "$1"; }
# The connection of a FUSE mount ends with its server's last descriptor, and another process may have that.
# The mount's device is 0:N for connection N. In mountinfo, a blank in a path is \040.
abort() {
    while read -r _ _ device _ at rest; do
        case $rest in *' - fuse'*) ;; *) continue ;; esac
        [ "$(printf '%b' "$at")" = "$1" ] || continue
        control=/sys/fs/fuse/connections/${device#0:}/abort
        [ -e "$control" ] || mount -t fusectl fusectl /sys/fs/fuse/connections
        echo 1 >"$control"
    done </proc/self/mountinfo
}
detach() {
    [ "$(cat "/sys/block/${1#/dev/}/loop/backing_file")" = "$2" ] && losetup -d "$1"
}
discard() { rm -rf --one-file-system "$1"; }
remove_zram() { echo 1 >"/sys/block/zram$1/reset"; echo "$1" >/sys/class/zram-control/hot_remove; }

while IFS= read -r line; do
    case $line in
    +*) todo=${line#+}$nl$todo ;;
    -*) todo=$(printf '%s' "$todo" | grep -v "^${line#-} ")$nl ;;
    esac
done
exec </dev/null

# A mount(2) that was in progress when the owner was killed may still succeed. Wait for it first.
tries=0
while [ "${todo#$nl}" ] && [ $tries -lt 50 ] &&
    grep -qs '^State:[[:space:]]*[^XZ]' "/proc/$owner/task/"*/status; do
    sleep 0.1
    tries=$((tries + 1))
done
IFS=$nl
set -f
# Before the clean-ups: those of a loop device on a FUSE file wait for the file's server.
for line in $todo; do
    unset IFS
    case $line in *' unmount '*) eval "abort ${line#*' unmount '}" ;; esac
done
IFS=$nl
for line in $todo; do
    unset IFS
    eval "${line#* }"
done
"#;

/// A clean-up that the janitor does if this process dies. Drop removes the clean-up.
#[derive(Debug)]
pub(crate) struct Claim {
    id: u64,
}

impl Claim {
    /// Registers: unmount the filesystem at `path`.
    pub(crate) fn unmount(path: &Path) -> Result<Self> {
        Claim::new(&format!("unmount {}", quoted(path)?))
    }

    /// Registers: detach the loop device, if it still has that backing file.
    pub(crate) fn detach(device: &Path, backing: &Path) -> Result<Self> {
        let (device, backing) = (quoted(device)?, quoted(backing)?);
        Claim::new(&format!("detach {device} {backing}"))
    }

    /// Registers: remove the directory and its contents, without crossing to other filesystems.
    pub(crate) fn discard(dir: &Path) -> Result<Self> {
        Claim::new(&format!("discard {}", quoted(dir)?))
    }

    /// Registers: reset and remove the zram device with this number.
    pub(crate) fn remove_zram(number: u32) -> Result<Self> {
        Claim::new(&format!("remove_zram {number}"))
    }

    fn new(command: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        tell(format!("+{id} {command}\n")).doing(|| "telling the janitor".into())?;
        Ok(Claim { id })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If the janitor is gone, there is nothing to remove.
        let _ = tell(format!("-{}\n", self.id));
    }
}

/// A line for the janitor, and the channel that reports that it was written.
struct Message {
    line: String,
    done: mpsc::SyncSender<io::Result<()>>,
}

fn tell(line: String) -> io::Result<()> {
    static JANITOR: OnceLock<mpsc::Sender<Message>> = OnceLock::new();
    let janitor = JANITOR.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        // If the thread cannot be started, the receiver is dropped and sending fails.
        let _ = thread::Builder::new()
            .name("janitor".into())
            .spawn(move || relay(&receiver));
        sender
    });
    let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the janitor is gone");
    let (done, handed_over) = mpsc::sync_channel(1);
    let message = Message { line, done };
    janitor.send(message).map_err(|_| gone())?;
    handed_over.recv().map_err(|_| gone())?
}

/// The janitor's thread: starts the shell, and writes to it until the process ends.
fn relay(messages: &mpsc::Receiver<Message>) {
    let mut shell = sys::leave_descriptor_table().and_then(|()| start());
    for message in messages {
        let written = match &mut shell {
            Ok((_, pipe)) => pipe.write_all(message.line.as_bytes()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        // The sender may not wait any more.
        let _ = message.done.send(written);
    }
}

fn start() -> io::Result<(Child, ChildStdin)> {
    // In its own session, so that neither Ctrl-C nor a signal to the process group reaches the
    // shell.
    let mut child =
        Command::new(missing::program("setsid", "util-linux").map_err(io::Error::other)?)
            .arg(missing::program("sh", "dash").map_err(io::Error::other)?)
            .args(["-c", SCRIPT, "slowdisk-janitor"])
            .arg(std::process::id().to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
    let pipe = child.stdin.take().expect("standard input is piped");
    Ok((child, pipe))
}

/// Quotes `path` as one word of a one-line shell command.
fn quoted(path: &Path) -> Result<String> {
    let unfit = |why| {
        let cause = io::Error::new(io::ErrorKind::InvalidInput, why);
        Error::new(format!("{path:?}"), cause)
    };
    let text = std::str::from_utf8(path.as_os_str().as_bytes())
        .map_err(|_| unfit("the path is not UTF-8"))?;
    if text.contains('\n') {
        return Err(unfit("the path has a line break"));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word() {
        assert_eq!(quoted(Path::new("/a b")).unwrap(), "'/a b'");
        assert_eq!(quoted(Path::new("/it's")).unwrap(), r"'/it'\''s'");
        assert!(quoted(Path::new("/a\nb")).is_err());
    }
}
