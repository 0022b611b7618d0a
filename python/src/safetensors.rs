//! The byte ranges of tensors in files of safetensors.
//!
//! ```text
//!  8 bytes: length of the header │ header: JSON, offsets of each tensor │ data
//! ```
//! The header may be hostile: nothing of it is trusted before it is compared with the size of the
//! file, and no memory is allocated beyond the limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nowait_page_cache::{Chosen, FileRef, OpenError};
use rustix::fs::FileType;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// The largest header, as in the library safetensors.
const MAX_HEADER: u64 = 100_000_000;
/// The length of the header's length.
const LENGTH: u64 = 8;

/// The reason why ranges are not known.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Open(PathBuf, OpenError),
    /// The header or the index is not valid.
    Invalid(PathBuf, String),
    /// There is no tensor of this name.
    Missing(String),
}

/// An entry of a header: a tensor.
#[derive(Deserialize)]
struct Entry {
    data_offsets: (u64, u64),
}

/// Reads the entries of a header one by one, and keeps the ranges of the chosen tensors only: a
/// header of 100 MB may have millions of them.
struct Header<'a> {
    /// The position of the data in the file, and its length.
    begin: u64,
    data: u64,
    chosen: HashMap<&'a str, Option<Range<u64>>>,
}

impl Header<'_> {
    /// Checks an entry, and keeps its range if it is chosen.
    fn add(&mut self, name: &str, entry: &Entry) -> Result<(), String> {
        let (from, to) = entry.data_offsets;
        if from > to || to > self.data {
            return Err(format!(
                "{name:?} is at {from} to {to} of {} bytes",
                self.data
            ));
        }
        if let Some(range) = self.chosen.get_mut(name) {
            *range = Some(self.begin + from..self.begin + to);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for &mut Header<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // A name without escapes is borrowed from the text.
        while let Some(Name(name)) = map.next_key()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else {
                let entry = map.next_value()?;
                self.add(&name, &entry).map_err(A::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// The name of a tensor or of a file.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The index of a model in several files: the file of each tensor.
#[derive(Deserialize)]
struct Index<'a> {
    #[serde(borrow)]
    weight_map: BTreeMap<Name<'a>, Name<'a>>,
}

/// The files and ranges of the chosen tensors, or of all. `path` is a file of safetensors, or an
/// index with a name that ends in `.json`.
pub fn ranges(path: &Path, tensors: Option<&[String]>) -> Result<Vec<Chosen>, Error> {
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(vec![of_file(path, tensors)?]);
    }
    let text = read(path)?;
    let index: Index<'_> = parse(path, &text)?;
    let files: BTreeSet<&str> = index.weight_map.values().map(|file| &*file.0).collect();
    for file in &files {
        if file.is_empty() || file.contains(['/', '\0']) || *file == ".." {
            let why = format!("weight_map has {file:?}, which is not a file name");
            return Err(Error::Invalid(path.to_owned(), why));
        }
    }
    let Some(tensors) = tensors else {
        let whole = files.iter().map(|file| of_file(&beside(path, file), None));
        return whole.collect();
    };
    let mut chosen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tensor in tensors {
        let file = index.weight_map.get(&Name(tensor.into()));
        let file = file.ok_or_else(|| Error::Missing(tensor.clone()))?;
        chosen.entry(&file.0).or_default().push(tensor.clone());
    }
    let files = chosen.iter();
    let ranges = files.map(|(file, tensors)| of_file(&beside(path, file), Some(tensors)));
    ranges.collect()
}

fn beside(index: &Path, file: &str) -> PathBuf {
    index.with_file_name(file)
}

/// The ranges of the chosen tensors of one file.
fn of_file(path: &Path, tensors: Option<&[String]>) -> Result<Chosen, Error> {
    let invalid = |why: String| Error::Invalid(path.to_owned(), why);
    let (mut file, size) = open(path)?;
    let short = || invalid("the header is truncated".into());
    let length = take(&mut file, path, LENGTH)?;
    let length = u64::from_le_bytes(length.try_into().map_err(|_| short())?);
    if length > MAX_HEADER || length + LENGTH > size {
        return Err(invalid(format!(
            "the header has {length} bytes, the file {size}"
        )));
    }
    let header = take(&mut file, path, length)?;
    if header.len() as u64 != length {
        return Err(short());
    }
    let begin = LENGTH + length;
    let mut entries = Header {
        begin,
        data: size - begin,
        chosen: tensors
            .unwrap_or_default()
            .iter()
            .map(|name| (name.as_str(), None))
            .collect(),
    };
    let mut parser = serde_json::Deserializer::from_slice(&header);
    let parsed = (&mut parser).deserialize_map(&mut entries);
    let parsed = parsed.and_then(|()| parser.end());
    parsed.map_err(|e| invalid(e.to_string()))?;
    if tensors.is_none() {
        return Ok((path.to_owned(), None));
    }
    let ranges = entries
        .chosen
        .into_iter()
        .map(|(name, range)| range.ok_or_else(|| Error::Missing(name.to_owned())));
    let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
    Ok((path.to_owned(), Some(ranges)))
}

/// Opens a regular file. Returns its size, too.
fn open(path: &Path) -> Result<(File, u64), Error> {
    let failed = |why| Error::Open(path.to_owned(), why);
    let given = FileRef::given(path.to_owned(), 0, FileType::RegularFile);
    let (file, stat) = given.open().map_err(failed)?;
    Ok((file, stat.st_size as u64))
}

/// The bytes of a file of at most [`MAX_HEADER`] bytes.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let (mut file, size) = open(path)?;
    if size > MAX_HEADER {
        let why = format!("an index of {size} bytes is larger than {MAX_HEADER}");
        return Err(Error::Invalid(path.to_owned(), why));
    }
    take(&mut file, path, size)
}

/// The next bytes of a file, fewer at its end.
fn take(file: &mut File, path: &Path, length: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = file.take(length).read_to_end(&mut bytes);
    let errno = |e: std::io::Error| {
        let errno = rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO);
        Error::Open(path.to_owned(), errno.into())
    };
    read.map_err(errno)?;
    Ok(bytes)
}

fn parse<'de, T: Deserialize<'de>>(path: &Path, text: &'de [u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|e| Error::Invalid(path.to_owned(), e.to_string()))
}
