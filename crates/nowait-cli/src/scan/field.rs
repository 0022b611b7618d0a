//! The fields of an entry that can be printed, by their names and by the letters of `find -printf`.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;

use nowait::{FileType, StatxMask};

use super::entry::{Entry, Xattr};
use super::mode;
use super::owner::{Names, Owners};
use crate::file_time::{Time, TimeFormat, Which};
use crate::messages::Messages;
use crate::selection;

/// A property of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Path,
    Name,
    Dir,
    Start,
    Relative,
    Depth,
    Type,
    Size,
    /// Allocated bytes.
    Allocated,
    /// Allocated space in units of so many bytes, rounded up.
    Blocks(u64),
    Mode,
    /// Type and permission bits as ls(1) prints them.
    SymbolicMode,
    Links,
    User,
    Group,
    Uid,
    Gid,
    Inode,
    Device,
    Target,
    Time(Which, TimeFormat),
    Xattrs,
}

/// The value of a field.
pub enum Value<'a> {
    /// Unknown, or not permitted.
    Unknown,
    /// The field has no value: the target of a file that is not a link.
    None,
    /// A number that find(1) formats as text.
    Number(u64),
    /// A number of printf(3)'s `%d`.
    Decimal(u64),
    /// A number of printf(3)'s `%o`.
    Octal(u32),
    /// Bytes of a path.
    Path(Cow<'a, [u8]>),
    Text(Cow<'static, str>),
    Name(Rc<str>),
    Time(Time, TimeFormat),
    Type(FileType),
    Xattrs(&'a [Xattr]),
}

/// The fields that have names, in the order of the help text.
const NAMED: [(&str, Field); 23] = [
    ("path", Field::Path),
    ("name", Field::Name),
    ("dir", Field::Dir),
    ("start", Field::Start),
    ("relative", Field::Relative),
    ("depth", Field::Depth),
    ("type", Field::Type),
    ("size", Field::Size),
    ("allocated", Field::Allocated),
    ("mode", Field::Mode),
    ("links", Field::Links),
    ("user", Field::User),
    ("group", Field::Group),
    ("uid", Field::Uid),
    ("gid", Field::Gid),
    ("inode", Field::Inode),
    ("device", Field::Device),
    ("target", Field::Target),
    ("mtime", Field::Time(Which::Modified, TimeFormat::Epoch)),
    ("atime", Field::Time(Which::Accessed, TimeFormat::Epoch)),
    ("ctime", Field::Time(Which::Changed, TimeFormat::Epoch)),
    ("btime", Field::Time(Which::Created, TimeFormat::Epoch)),
    ("xattrs", Field::Xattrs),
];

impl Field {
    /// The name for --fields. Fields that only --format can print have none.
    pub fn name(self) -> Option<&'static str> {
        let named = NAMED.iter().find(|(_, field)| *field == self);
        named.map(|(name, _)| *name)
    }

    /// The field of a letter of `find -printf`. Times have two letters.
    pub fn by_letter(letter: char) -> Option<Field> {
        Some(match letter {
            'p' => Field::Path,
            'f' => Field::Name,
            'h' => Field::Dir,
            'H' => Field::Start,
            'P' => Field::Relative,
            'd' => Field::Depth,
            'y' => Field::Type,
            's' => Field::Size,
            'b' => Field::Blocks(512),
            'k' => Field::Blocks(1024),
            'm' => Field::Mode,
            'M' => Field::SymbolicMode,
            'n' => Field::Links,
            'u' => Field::User,
            'g' => Field::Group,
            'U' => Field::Uid,
            'G' => Field::Gid,
            'i' => Field::Inode,
            'D' => Field::Device,
            'l' => Field::Target,
            't' => Field::Time(Which::Modified, TimeFormat::Ctime),
            'a' => Field::Time(Which::Accessed, TimeFormat::Ctime),
            'c' => Field::Time(Which::Changed, TimeFormat::Ctime),
            _ => return None,
        })
    }

    /// The fields of statx(2) that it needs. The directory lists types and inode numbers.
    pub fn mask(self) -> StatxMask {
        match self {
            Field::Size => StatxMask::SIZE,
            Field::Allocated | Field::Blocks(_) => StatxMask::BLOCKS,
            Field::Mode | Field::SymbolicMode => StatxMask::MODE,
            Field::Links => StatxMask::NLINK,
            Field::User | Field::Uid => StatxMask::UID,
            Field::Group | Field::Gid => StatxMask::GID,
            Field::Inode => StatxMask::INO,
            // statx(2) always fills in the device.
            Field::Device => StatxMask::TYPE,
            Field::Time(which, _) => which.mask(),
            _ => StatxMask::empty(),
        }
    }

    /// The value for an entry.
    pub fn of<'a>(self, entry: &'a Entry<'_>, owners: &Owners, messages: &Messages) -> Value<'a> {
        let metadata = entry.metadata(self.mask());
        let number = |value: Option<u64>| value.map_or(Value::Unknown, Value::Number);
        let owner = |names: &Names, id: Option<u32>| match id {
            Some(id) => names.of(id).map_or(Value::Number(id.into()), Value::Name),
            None => Value::Unknown,
        };
        match self {
            Field::Path => Value::Path(path(entry).into()),
            Field::Name => Value::Path(entry.file_name().as_bytes().into()),
            Field::Dir => Value::Path(directory(path(entry)).into()),
            Field::Start => Value::Path(entry.start.as_os_str().as_bytes().into()),
            Field::Relative => Value::Path(relative(path(entry), entry.start).into()),
            Field::Depth => Value::Decimal(entry.depth as u64),
            Field::Type => Value::Type(entry.kind),
            Field::Size => number(metadata.map(|metadata| metadata.len())),
            Field::Allocated => {
                number(metadata.map(|metadata| metadata.blocks().saturating_mul(512)))
            }
            Field::Blocks(unit) => {
                number(metadata.map(|metadata| metadata.blocks().div_ceil(unit / 512)))
            }
            Field::Mode => metadata.map_or(Value::Unknown, |metadata| {
                Value::Octal(metadata.mode() & 0o7777)
            }),
            Field::SymbolicMode => metadata.map_or(Value::Unknown, |metadata| {
                Value::Text(mode::symbolic(entry.kind, metadata.mode()).into())
            }),
            Field::Links => number(metadata.map(|metadata| metadata.nlink())),
            Field::User => owner(&owners.users, metadata.map(|metadata| metadata.uid())),
            Field::Group => owner(&owners.groups, metadata.map(|metadata| metadata.gid())),
            Field::Uid => number(metadata.map(|metadata| metadata.uid().into())),
            Field::Gid => number(metadata.map(|metadata| metadata.gid().into())),
            Field::Inode => Value::Number(entry.inode),
            Field::Device => number(metadata.map(|metadata| metadata.dev())),
            Field::Target => target(entry, messages),
            Field::Time(which, format) => metadata
                .and_then(|metadata| which.of(metadata))
                .map_or(Value::Unknown, |time| Value::Time(time, format)),
            Field::Xattrs => match &entry.xattrs {
                Some(all) => Value::Xattrs(all),
                None => Value::Unknown,
            },
        }
    }
}

fn path(entry: &Entry<'_>) -> Vec<u8> {
    let mut path = Vec::with_capacity(256);
    entry.write_path(&mut path);
    path
}

/// The path up to its last slash; `.` if it has none. `Path::parent` would also remove a component
/// `.`, and slashes that follow each other.
fn directory(mut path: Vec<u8>) -> Vec<u8> {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => path.truncate(slash),
        None => path = b".".to_vec(),
    }
    path
}

/// The path below `start`, with which it begins.
fn relative(mut path: Vec<u8>, start: &Path) -> Vec<u8> {
    path.drain(..start.as_os_str().len().min(path.len()));
    if path.first() == Some(&b'/') {
        path.remove(0);
    }
    path
}

/// The target of a symbolic link. A failure is reported.
fn target(entry: &Entry<'_>, messages: &Messages) -> Value<'static> {
    if entry.kind != FileType::Symlink {
        return Value::None;
    }
    let path = entry.path();
    match std::fs::read_link(&path) {
        Ok(target) => Value::Path(target.into_os_string().into_encoded_bytes().into()),
        Err(why) => {
            messages.failure(&path, format_args!("cannot read the link: {why}"));
            Value::Unknown
        }
    }
}

/// A list of named fields.
#[derive(Clone, Debug)]
pub struct Fields(Vec<Field>);

impl Fields {
    /// The path alone.
    pub fn path() -> Fields {
        Fields(vec![Field::Path])
    }

    /// The fields of JSON if no others were requested.
    pub fn of_json() -> Fields {
        let modified = Field::Time(Which::Modified, TimeFormat::Epoch);
        Fields(vec![
            Field::Path,
            Field::Type,
            Field::Inode,
            Field::Mode,
            Field::Links,
            Field::Uid,
            Field::Gid,
            Field::User,
            Field::Group,
            Field::Size,
            Field::Allocated,
            modified,
            Field::Target,
        ])
    }

    /// Adds extended attributes if they are not among the fields.
    pub fn add_xattrs(&mut self) {
        if !self.0.contains(&Field::Xattrs) {
            self.0.push(Field::Xattrs);
        }
    }

    /// The fields.
    pub fn iter(&self) -> impl Iterator<Item = Field> + '_ {
        self.0.iter().copied()
    }
}

impl FromStr for Fields {
    type Err = String;

    fn from_str(list: &str) -> Result<Fields, String> {
        selection::parse(list, "field", &NAMED).map(Fields)
    }
}

/// Parses a letter of --type.
pub fn file_type(letter: &str) -> Result<FileType, String> {
    Ok(match letter {
        "f" => FileType::File,
        "d" => FileType::Dir,
        "l" => FileType::Symlink,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        "c" => FileType::CharDevice,
        "b" => FileType::BlockDevice,
        _ => {
            return Err(format!(
                "`{letter}` is not a type: write f, d, l, p, s, c or b, or several with commas between them"
            ));
        }
    })
}
