//! The object that is read, the objects that are listed, and the state of the kernel's caches.

use std::fs::File;
use std::path::{Path, PathBuf};

use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use slowdisk::{SlowDisk, TestMount};
use tempfile::TempDir;

use super::Args;
use super::work::Work;
use crate::harness::cache::{FORGET, evict, forget, read_through, resident, sync};
use crate::harness::files::{Files, Wanted, check, scratch};
use crate::harness::memory;

/// The object and the directory. Dropping it removes what was made.
pub struct Ground {
    files: Files,
    list: Option<List>,
}

/// The objects that are listed.
struct List {
    root: PathBuf,
    objects: u64,
    place: Place,
}

/// The disk of the list. Fields are dropped in their order.
enum Place {
    Made {
        _directory: TempDir,
    },
    Slow {
        mount: Box<TestMount>,
        disk: SlowDisk,
    },
}

/// The largest block, by which the object is made.
const BLOCK: u64 = 64 << 10;

/// The remedy if there is no space for the objects of the list.
const FEWER: &str = "choose fewer --objects, or go to a directory elsewhere";

/// The objects of one directory.
const OF_A_DIRECTORY: u64 = 1_000;

/// Bytes of a slow disk for each object.
const BYTES_AN_OBJECT: u64 = 4 << 10;

impl Ground {
    /// Finds or makes the objects.
    pub fn prepare(args: &Args, works: &[Work], stop: &Stop) -> Result<Ground, Problem> {
        let wanted = Wanted {
            path: args.file.as_deref(),
            size: args.size,
            shares: &[1],
            block: BLOCK,
        };
        let files = Files::prepare(wanted, stop)?;
        for file in files.open()? {
            rustix::fs::fdatasync(&file).map_err(|e| Problem::of("fdatasync", e))?;
        }
        let list = match works.contains(&Work::List) {
            true => Some(List::make(args, stop)?),
            false => None,
        };
        Ok(Ground { files, list })
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
    pub fn list(&self) -> Option<(&Path, u64)> {
        self.list.as_ref().map(|list| (&*list.root, list.objects))
    }

    /// How the caches are prepared.
    pub fn how(&self) -> String {
        let list = match self.list.as_ref().map(|list| &list.place) {
            Some(Place::Slow { .. }) => {
                "the slow disk's filesystem is mounted anew before each turn"
            }
            Some(Place::Made { .. }) => FORGET,
            None => "none",
        };
        format!(
            "warm: the object is read through unless all of it is in the page cache; cold: POSIX_FADV_DONTNEED, and as \
             much memory as the object needs is used and freed; list: {list}"
        )
    }

    /// Puts the caches into the state of a work.
    pub fn make_ready(&self, work: Work) -> Result<(), Problem> {
        check(self.object(), self.size())?;
        let open = self.files.open()?;
        match work {
            Work::List => self.list.as_ref().map_or(Ok(()), List::make_cold),
            Work::Cold => {
                evict(&open)?;
                memory::touch(self.size());
                Ok(())
            }
            Work::WarmOne | Work::WarmMany | Work::Ranges => {
                if resident(&open).is_none_or(|bytes| bytes < self.size()) {
                    read_through(&open[0], self.size())?;
                }
                Ok(())
            }
        }
    }
}

impl List {
    fn make(args: &Args, stop: &Stop) -> Result<List, Problem> {
        let objects = u64::from(args.objects);
        let (root, place) = match &args.slow {
            Some(slow) => {
                let (disk, mount) = slow.build(objects, objects * BYTES_AN_OBJECT)?;
                let mount = Box::new(mount);
                let root = mount.path().join("objects");
                (root, Place::Slow { mount, disk })
            }
            None => {
                let made = scratch(None, objects * BYTES_AN_OBJECT, FEWER)?;
                (
                    made.path().join("objects"),
                    Place::Made { _directory: made },
                )
            }
        };
        let speed = match &place {
            Place::Slow { disk, .. } => Some(disk.full_speed()),
            Place::Made { .. } => None,
        };
        let failed =
            |path: &Path, e| Problem::of(format_args!("cannot make {}", path.display()), e);
        let mut progress = Progress::of_turns(objects);
        for object in 0..objects {
            let directory = root.join(format!("{}", object / OF_A_DIRECTORY));
            if object.is_multiple_of(OF_A_DIRECTORY) {
                std::fs::create_dir_all(&directory).map_err(|e| failed(&directory, e))?;
                progress.at(object, "making objects".into());
                if stop.asked() {
                    return Err(Problem::Interrupted);
                }
            }
            let path = directory.join(format!("object-{object:08}"));
            File::create_new(&path).map_err(|e| failed(&path, e))?;
        }
        sync(&root)?;
        drop(speed);
        Ok(List {
            root,
            objects,
            place,
        })
    }

    fn make_cold(&self) -> Result<(), Problem> {
        match &self.place {
            Place::Slow { mount, .. } => {
                mount.remount().map_err(|e| Problem::Failed(e.to_string()))
            }
            Place::Made { .. } => forget(
                [self.root.as_path()],
                self.objects,
                0,
                "choose --works without list",
            ),
        }
    }
}
