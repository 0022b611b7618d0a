//! EROFS with the mount option `inode_share` (Linux 7.0): files of the same content share the page cache, also
//! those of different images. cachestat(2) counts a file's own pages, which reads do not use.
//!
//! Older kernels lack the option. The test then mounts the images without it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use nowait::engine::Options;
use nowait::residency::{Answer, Probe, Source, page_size, residency};
use nowait::{Mode, OpenOptions, ServedBy};
use rustix::fs::{Advice, XattrFlags, fadvise, setxattr};
use rustix::io::pread;
use slowdisk::{LoopDevice, Mount};
use tempfile::TempDir;

use crate::common::files::{pattern, patterned, scratch};
use crate::common::limit::Limit;
use crate::residency::seen;

const LEN: usize = 1 << 20;
/// The pages that are read.
const CACHED: u64 = 16;

/// An extended attribute that identifies the content of a file.
const PREFIX: &[u8] = b"trusted.";
const NAME: &[u8] = b"nowait.content";

/// A mounted image.
struct Image {
    mount: Mount,
    shares: bool,
    _device: LoopDevice,
    _directory: TempDir,
}

impl Image {
    fn file(&self) -> PathBuf {
        self.mount.path().join("file")
    }
}

/// Makes and mounts an image with one file. `None` if mkfs.erofs is missing.
fn image() -> Option<Image> {
    let (from, at) = (scratch(), scratch());
    patterned(from.path(), "file", LEN);
    let name = [PREFIX, NAME].concat();
    let file = from.path().join("file");
    setxattr(&file, name, b"pattern", XattrFlags::empty()).expect("setxattr");
    let path = at.path().join("image");
    let made = Command::new("mkfs.erofs")
        .arg(&path)
        .arg(from.path())
        .output();
    let Ok(output) = made else {
        slowdisk::skip_or_fail("the package erofs-utils is not installed");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    share(&path);
    let device = LoopDevice::attach(&path).expect("a loop device");
    let on = at.path().join("mount");
    fs::create_dir(&on).expect("mkdir");
    let mounted = |options| Mount::new(device.path(), &on, "erofs", options);
    let (mount, shares) = match mounted("inode_share,domain_id=nowait") {
        Ok(mount) => (mount, true),
        Err(_) => (mounted("").expect("a mount of EROFS"), false),
    };
    Some(Image {
        mount,
        shares,
        _device: device,
        _directory: at,
    })
}

/// Changes the superblock of an image as a newer mkfs.erofs does: the extended attribute tells which files have
/// the same content.
fn share(image: &Path) {
    const SUPERBLOCK: usize = 1024;
    const FEATURE_COMPAT: usize = SUPERBLOCK + 8;
    const FEATURE_INCOMPAT: usize = SUPERBLOCK + 80;
    const PREFIX_COUNT: usize = SUPERBLOCK + 91;
    const PREFIX_START: usize = SUPERBLOCK + 92;
    const SHARE_PREFIX: usize = SUPERBLOCK + 105;
    const HAS_CHECKSUM: u8 = 1;
    const PLAIN_PREFIXES: u8 = 0x10;
    const SHARES_INODES: u8 = 0x20;
    const XATTR_PREFIXES: u8 = 0x40;
    /// `EROFS_XATTR_INDEX_TRUSTED`.
    const TRUSTED: u8 = 4;
    // The first kilobyte of an image is not used.
    const TABLE: usize = 512;

    let mut bytes = fs::read(image).expect("the image");
    bytes[FEATURE_COMPAT] &= !HAS_CHECKSUM;
    bytes[FEATURE_COMPAT] |= PLAIN_PREFIXES | SHARES_INODES;
    // Linux since 6.4 has such prefixes. Older kernels would refuse the image.
    if nowait::support::Kernel::get().cachestat.is_yes() {
        bytes[FEATURE_INCOMPAT] |= XATTR_PREFIXES;
    }
    bytes[PREFIX_COUNT] = 1;
    bytes[PREFIX_START..][..4].copy_from_slice(&(TABLE as u32 / 4).to_le_bytes());
    bytes[SHARE_PREFIX] = 0;
    let length = (1 + NAME.len()) as u16;
    let entry = [&length.to_le_bytes()[..], &[TRUSTED], NAME].concat();
    bytes[TABLE..][..entry.len()].copy_from_slice(&entry);
    fs::write(image, bytes).expect("the image");
}

/// Reads the first pages and no others.
fn read(path: &Path) {
    let file = File::open(path).expect("open");
    fadvise(&file, 0, None, Advice::Random).expect("fadvise");
    let mut buf = vec![0; (CACHED * page_size()) as usize];
    assert_eq!(pread(&file, &mut buf, 0), Ok(buf.len()));
    assert!(buf == pattern(0, buf.len()));
}

#[test]
fn pages_that_images_share_are_counted_for_each_of_them() {
    slowdisk::require!(slowdisk::available());
    let _limit = Limit::new("erofs".into());
    let (Some(one), Some(other)) = (image(), image()) else {
        return;
    };
    println!("pages are shared: {}", one.shares);
    read(&one.file());
    // Without the option, each image has pages of its own.
    for (image, cached) in [
        (&one, CACHED),
        (&other, if other.shares { CACHED } else { 0 }),
    ] {
        let file = File::open(image.file()).expect("open");
        assert_eq!(
            Probe::new(&file).expect("a choice").source(),
            Ok(Source::Mincore)
        );
        assert_eq!(seen(&image.file()).len() as u64, cached);
        let Ok(Answer::Known { value, .. }) = residency(&file, 0..LEN as u64) else {
            panic!("the residency is unknown");
        };
        assert_eq!(value.cached, cached);
    }
}

#[test]
fn a_page_that_another_image_has_read_is_a_hit() {
    slowdisk::require!(slowdisk::available());
    let _limit = Limit::new("erofs".into());
    let (Some(one), Some(other)) = (image(), image()) else {
        return;
    };
    for mode in [Mode::Eager, Mode::Strict] {
        read(&one.file());
        let file = if other.shares { &other } else { &one }.file();
        let engine = Options::new().build().expect("an engine");
        let mut options = OpenOptions::new();
        let options = options.read(true).cache_mode(mode).engine(&engine);
        let file = options.blocking_open(file).expect("open");
        // The first try may find that NOWAIT is refused.
        let reads = [0, page_size()].map(|offset| {
            let done = pollster::block_on(file.read_at(Vec::with_capacity(4096), offset));
            assert_eq!(done.result.expect("read"), 4096);
            assert!(done.buf == pattern(offset, 4096));
            done.provenance.served_by
        });
        assert_eq!(reads[1], ServedBy::Caller, "{mode:?}");
    }
}
