//! Directories on filesystems of each kind, and a process that may not make hard links.
#![allow(unsafe_code, reason = "prctl(2) and seccomp(2)")]

use std::path::{Path, PathBuf};

use slowdisk::{Filesystem, Linkless, LinklessTree, Missing, TestMount};

use crate::common::scratch;

/// A directory, and the filesystem that it is on.
pub struct Place {
    pub name: String,
    root: PathBuf,
    _mount: Mounted,
}

#[expect(dead_code, reason = "they are unmounted by drop")]
enum Mounted {
    Filesystem(TestMount),
    // The mount goes before the directory.
    Linkless(LinklessTree, tempfile::TempDir),
}

impl Place {
    pub fn new(filesystem: Filesystem) -> Result<Place, Missing> {
        filesystem.available()?;
        Ok(Place::of(TestMount::new(filesystem).unwrap()))
    }

    pub fn of(mount: TestMount) -> Place {
        let root = mount.path().join("root");
        std::fs::create_dir_all(&root).unwrap();
        Place {
            name: root.display().to_string(),
            root,
            _mount: Mounted::Filesystem(mount),
        }
    }

    /// FUSE without hard links.
    pub fn linkless(link: i32, rename_flags: bool) -> Result<Place, Missing> {
        slowdisk::available()?;
        let directory = scratch();
        let properties = Linkless { link, rename_flags };
        let tree = LinklessTree::new(directory.path(), properties).unwrap();
        let root = tree.path().join("root");
        std::fs::create_dir(&root).unwrap();
        Ok(Place {
            name: "fuse".to_owned(),
            root,
            _mount: Mounted::Linkless(tree, directory),
        })
    }

    /// All filesystems, and FUSE without hard links.
    pub fn all() -> Result<Vec<Place>, Missing> {
        let mut all: Vec<Place> = Filesystem::ALL
            .into_iter()
            .map(|filesystem| {
                let mut place = Place::new(filesystem)?;
                place.name = filesystem.to_string();
                Ok(place)
            })
            .collect::<Result<_, _>>()?;
        all.push(Place::linkless(libc::EPERM, true)?);
        Ok(all)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// Makes each further linkat(2) of this process fail with this errno.
pub fn deny_links(errno: i32) {
    let load_number = instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
    let end = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        load_number,
        instruction(jump, libc::SYS_linkat as u32, 1),
        instruction(end, refuse, 0),
        instruction(end, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives through both calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (set, flags) = (
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
        );
        let done = libc::syscall(libc::SYS_seccomp, set, flags, &raw const filter);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

/// An instruction that skips `skips` others if a comparison fails.
fn instruction(code: u32, k: u32, skips: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skips,
        k,
    }
}
