//! The janitor: a shell that outlives this process and undoes what the process could not.
//!
//! A clean-up is claimed before the thing it undoes is made, and forgotten after the thing was
//! undone in the ordinary way. The shell learns of both through a pipe. When the pipe closes
//! because the process is gone, however it went, the shell runs the clean-ups that are left, the
//! newest first.
//!
//! The pipe's end is held by a thread with a descriptor table of its own. The process's table stays
//! open as long as one of its threads is stuck in uninterruptible I/O, which may be I/O that only
//! the clean-up can end; and a forked child would keep a copy.

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
# -c: the path is taken as it is, since looking at a dead FUSE mount fails.
# -f ends the requests of a FUSE mount that nobody serves any more.
unmount() { umount -c "$1" || umount -c -f -l "$1"; }
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

# A mount(2) that was under way when the owner was killed may still succeed: let it end first.
tries=0
while [ "${todo#$nl}" ] && [ $tries -lt 50 ] &&
    grep -qs '^State:[[:space:]]*[^XZ]' "/proc/$owner/task/"*/status; do
    sleep 0.1
    tries=$((tries + 1))
done
IFS=$nl
set -f
for line in $todo; do
    unset IFS
    eval "${line#* }"
done
"#;

/// A clean-up that the janitor will do if this process dies; dropped, it is forgotten.
#[derive(Debug)]
pub(crate) struct Claim {
    id: u64,
}

impl Claim {
    /// Will unmount whatever is mounted at `path`.
    pub(crate) fn unmount(path: &Path) -> Result<Self> {
        Claim::new(&format!("unmount {}", quoted(path)?))
    }

    /// Will detach the loop device, if it still has that backing file.
    pub(crate) fn detach(device: &Path, backing: &Path) -> Result<Self> {
        let (device, backing) = (quoted(device)?, quoted(backing)?);
        Claim::new(&format!("detach {device} {backing}"))
    }

    /// Will remove the directory and all in it, on its own filesystem.
    pub(crate) fn discard(dir: &Path) -> Result<Self> {
        Claim::new(&format!("discard {}", quoted(dir)?))
    }

    /// Will reset the zram device of this number, and remove it.
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
        // A janitor that is gone has nothing to forget.
        let _ = tell(format!("-{}\n", self.id));
    }
}

/// A line for the janitor, and where to say that it has been handed over.
struct Message {
    line: String,
    done: mpsc::SyncSender<io::Result<()>>,
}

fn tell(line: String) -> io::Result<()> {
    static JANITOR: OnceLock<mpsc::Sender<Message>> = OnceLock::new();
    let janitor = JANITOR.get_or_init(|| {
        let (sender, receiver) = mpsc::channel();
        // When the thread cannot be started, the receiver is gone and sending fails.
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

/// The janitor's thread: starts the shell, and writes to it for as long as the process lives.
fn relay(messages: &mpsc::Receiver<Message>) {
    let mut shell = sys::leave_descriptor_table().and_then(|()| start());
    for message in messages {
        let written = match &mut shell {
            Ok((_, pipe)) => pipe.write_all(message.line.as_bytes()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        // Whoever asked may have given up waiting.
        let _ = message.done.send(written);
    }
}

fn start() -> io::Result<(Child, ChildStdin)> {
    // A session of its own: neither Ctrl-C nor a signal to the process group reaches it.
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

/// `path` as one word of a shell command that fits on one line.
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
