//! The object that is read, the objects that are listed, and the state of the kernel's caches.

use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

use super::work::Work;
use crate::harness::cache::{evict, warm};
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::{Files, check};
use crate::harness::memory;
use crate::harness::slow::Slow;

/// The object, and the objects that are listed. Dropping it removes what was made.
pub struct Ground {
    files: Files,
    list: Option<(Directory, u64)>,
}

/// The largest block, by which the object is made.
const BLOCK: u64 = 64 << 10;

const FEWER: &str = "choose fewer --objects, or go to a directory elsewhere";

/// The objects of one directory.
const OF_A_DIRECTORY: u64 = 1_000;

impl Ground {
    /// Finds or makes the object, of this path and size, and this number of objects to list.
    pub fn prepare(
        object: (Option<&Path>, Size),
        objects: Option<u32>,
        slow: Option<&Slow>,
        stop: &Stop,
    ) -> Result<Ground, Problem> {
        let files = Files::prepare(object, &[1], BLOCK, stop)?;
        files.sync()?;
        let mut ground = Ground { files, list: None };
        if let Some(objects) = objects.map(u64::from) {
            let bytes = objects * BYTES_A_FILE;
            let directory = Directory::make(slow, objects, bytes, FEWER)?;
            let path = |n: u64| {
                let path = format!("objects/{}/object-{n:08}", n / OF_A_DIRECTORY);
                (PathBuf::from(path), 0)
            };
            directory.fill(&(0..objects).map(path).collect::<Vec<_>>(), stop)?;
            ground.list = Some((directory, objects));
        }
        Ok(ground)
    }

    /// The path of the object.
    pub fn object(&self) -> &Path {
        &self.files.paths[0]
    }

    /// The bytes of the object that are read.
    pub fn size(&self) -> u64 {
        self.files.sizes[0]
    }

    /// The root of the objects that are listed, and their number.
    pub fn list(&self) -> Option<(PathBuf, u64)> {
        let (directory, objects) = self.list.as_ref()?;
        Some((directory.path().join("objects"), *objects))
    }

    /// How the caches are prepared.
    pub fn how(&self) -> String {
        let list = self.list.as_ref();
        let list = list.map_or("none", |(directory, _)| directory.how());
        format!(
            "warm: the object is read through unless all of it is in the page cache; cold: POSIX_FADV_DONTNEED, and as \
             much memory as the object needs is used and freed; list: {list}"
        )
    }

    /// Puts the caches into the state of a work.
    pub fn make_ready(&self, work: Work) -> Result<(), Problem> {
        check(self.object(), self.size())?;
        let open = self.files.open()?;
        match (work, &self.list) {
            (Work::List, Some((directory, objects))) => {
                directory.make_cold(*objects, 0, "choose --works without list")?;
            }
            (Work::List, None) => {}
            (Work::Cold | Work::ColdTiles, _) => {
                evict(&open)?;
                memory::touch(self.size());
            }
            (Work::WarmOne | Work::WarmMany | Work::Ranges | Work::Tiles, _) => {
                warm(&open[0], self.size())?
            }
        }
        Ok(())
    }
}
