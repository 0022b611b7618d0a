//! Readahead for one program.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nowait_ahead_channel::Channel;

use crate::directories;
use crate::file_queue;
use crate::files::Files;
use crate::follow::{Activity, Follower, Following};
use crate::mounts;
use crate::surveyed_file::ReadAheadFiles;
use crate::trees::Trees;

/// Reads ahead of a program.
///
/// Calls on the program's paths may wait without end, and the threads that make them then do not
/// end. So this is to be used in a process of its own.
pub struct Readahead {
    channel: Option<Arc<Channel>>,
    trees: Trees,
    files: Option<Files>,
    following: Option<Following>,
}

/// The sums of all that was read ahead.
#[derive(Debug)]
pub struct Report {
    /// The inodes.
    pub inodes: directories::Summary,
    /// The files, if their data was to be read.
    pub data: Option<file_queue::Summary>,
    /// The program, if it has a channel.
    pub activity: Option<Activity>,
}

impl Readahead {
    /// Reads nothing yet, and starts no thread. The program sends its events to `channel`. With
    /// `data`, the data of files is read, too. `available` returns the bytes of memory that are
    /// available.
    pub fn new(channel: Option<Arc<Channel>>, data: bool, available: fn() -> u64) -> Readahead {
        let files = data.then(|| Files::new(available));
        Readahead {
            channel,
            trees: Trees::new(files.clone(), available),
            files,
            following: None,
        }
    }

    /// Walks the tree below `root` ahead of the program, which inotify(7) watches there.
    ///
    /// # Errors
    /// ENOTDIR if it is no directory; the errors of open(2), inotify_init1(2) and
    /// pthread_create(3).
    pub fn walk(&self, root: &Path) -> io::Result<()> {
        self.trees.walk_watched(root)
    }

    /// Returns true if the data of files is read.
    pub fn reads_data(&self) -> bool {
        self.files.is_some()
    }

    /// Surveys each file before its data is read, and adds it to `surveyed`.
    pub(crate) fn survey_before_reading(&self, surveyed: ReadAheadFiles) {
        if let Some(files) = &self.files {
            files.survey_before_reading(surveyed);
        }
    }

    /// Follows the program by its events, if there is a channel. Does nothing if it is followed
    /// already.
    pub fn follow(&mut self) {
        if self.following.is_none()
            && let Some(channel) = &self.channel
        {
            let (trees, files) = (self.trees.clone(), self.files.clone());
            self.following = Some(Follower::new(channel.clone(), trees, files).start());
        }
    }

    /// Ends the readahead of data. Waits for calls in progress, at most 10 seconds: what they read could not be evicted before.
    pub fn end_data(&self) {
        if let Some(files) = &self.files {
            files.end(Duration::from_secs(10));
        }
    }

    /// Ends all readahead. Calls in progress go on.
    pub fn end(&self) {
        self.trees.cancel();
        if let Some(files) = &self.files {
            files.end(Duration::ZERO);
            files.let_go(|_| true);
        }
    }

    /// Waits until this process has no directory or file open, so that the caller can unmount filesystems, after
    /// [`end`](Readahead::end). Waits at most two seconds for a disk or a server that does not answer.
    pub fn wait_until_closed(&mut self) {
        let longest = Duration::from_secs(2);
        if let Some(following) = self.following.take() {
            following.stop();
        }
        mounts::wait_until_unused(&mounts::of_files(), longest, |_| {});
    }

    /// Stops following the program, and returns the sums so far. Waits for no disk.
    pub fn report(&mut self) -> Report {
        let activity = match self.following.take() {
            Some(following) => Some(following.stop()),
            None => self.channel.as_deref().map(Activity::of),
        };
        Report {
            inodes: self.trees.summary(),
            data: self.files.as_ref().map(Files::summary),
            activity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use test_support::limit::wait_until;

    use crate::mounts::tests::Mounted;

    /// A walk that the user has asked for goes on as long as the program runs.
    #[test]
    fn a_filesystem_is_not_in_use_when_readahead_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().canonicalize().unwrap();
        let Some(_mounted) = Mounted::new(&["-t", "tmpfs", "none"], &at) else {
            return;
        };
        for n in 0..20_000 {
            std::fs::write(at.join(n.to_string()), "bytes").unwrap();
        }
        let mut readahead = Readahead::new(None, true, || 1 << 30);
        readahead.walk(&at).unwrap();
        let mounts = mounts::at(&at);
        assert!(mounts::are_in_use(&mounts));
        readahead.end();
        readahead.wait_until_closed();
        wait_until("nothing is open", || !mounts::are_in_use(&mounts));
    }
}
