//! The parts of the JSON object; its shape is described in [`super`].

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait::FileType;
use serde::Serialize;

use super::owner::Owners;
use super::row::{Row, Xattr};
use crate::name::{Name, text_and_hex};

/// One name.
#[derive(Serialize)]
pub struct Entry<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    r#type: &'static str,
    inode: u64,
    mode: Option<String>,
    links: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    owner: Option<&'a str>,
    group: Option<&'a str>,
    size: Option<u64>,
    allocated: Option<u64>,
    mtime: Option<i64>,
    mtime_ns: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xattrs: Option<Vec<Attribute<'a>>>,
}

/// One extended attribute.
#[derive(Serialize)]
struct Attribute<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

impl<'a> Attribute<'a> {
    fn of(xattr: &Xattr<'a>) -> Attribute<'a> {
        let (name, name_hex) = text_and_hex(xattr.name);
        let value = xattr.value.map(text_and_hex);
        let (value, value_hex) = value.map_or((None, None), |(text, hex)| (Some(text), hex));
        Attribute {
            name,
            name_hex,
            value,
            value_hex,
        }
    }
}

impl<'a> Entry<'a> {
    /// Of this row, whose path and target these are.
    pub fn of(
        row: &Row<'a>,
        path: &'a Path,
        target: Option<&'a Path>,
        owners: &'a mut Owners,
    ) -> Entry<'a> {
        let stat = row.stat;
        let Owners { users, groups } = owners;
        let target = target.map(|target| text_and_hex(target.as_os_str().as_bytes()));
        let (target, target_hex) = target.map_or((None, None), |(text, hex)| (Some(text), hex));
        Entry {
            name: Name::of(path),
            r#type: word(row.kind),
            inode: row.inode,
            mode: stat.map(|stat| format!("{:04o}", stat.mode() & 0o7777)),
            links: stat.map(|stat| stat.nlink()),
            uid: stat.map(|stat| stat.uid()),
            gid: stat.map(|stat| stat.gid()),
            owner: stat.and_then(|stat| users.name(stat.uid())),
            group: stat.and_then(|stat| groups.name(stat.gid())),
            size: stat.map(|stat| stat.len()),
            allocated: stat.map(|stat| stat.blocks() * 512),
            mtime: stat.map(|stat| stat.mtime()),
            mtime_ns: stat.map(|stat| stat.mtime_nsec()),
            target,
            target_hex,
            xattrs: row
                .xattrs
                .as_ref()
                .map(|all| all.iter().map(Attribute::of).collect()),
        }
    }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}
