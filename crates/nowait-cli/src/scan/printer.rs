//! Prints entries on standard output: lines, entries that end with a NUL byte, or JSON objects.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait::StatxMask;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::entry::{Entry, Xattr};
use super::field::{Field, Fields, Value};
use super::format::{Format, Part};
use super::mode;
use super::owner::Owners;
use crate::file_time::TimeFormat;
use crate::messages::Messages;
use crate::name::{DisplayPath, serialize_bytes};
use crate::output::Output;
use crate::problem::Problem;
use crate::terminal::Terminal;

/// The form in which an entry is printed.
pub enum Form {
    Text(Format),
    Json(Fields),
}

impl Form {
    fn fields(&self) -> Vec<Field> {
        match self {
            Form::Text(format) => format.fields().collect(),
            Form::Json(fields) => fields.iter().collect(),
        }
    }

    /// The fields of statx(2) that are printed.
    pub fn mask(&self) -> StatxMask {
        let fields = self.fields().into_iter();
        // The directory lists inode numbers: a query for them alone is not needed.
        let mask = fields.fold(StatxMask::empty(), |mask, field| mask | field.mask());
        if mask == StatxMask::INO {
            StatxMask::empty()
        } else {
            mask
        }
    }

    /// Returns true if extended attributes are printed.
    pub fn has_xattrs(&self) -> bool {
        self.fields().contains(&Field::Xattrs)
    }
}

/// Prints entries and counts them.
pub struct Printer {
    out: Output,
    form: Form,
    /// The byte after each entry.
    end: u8,
    /// True if names are quoted, and printed as they come: standard output is a terminal.
    watched: bool,
    owners: Owners,
    entries: u64,
    /// The entries that are not yet written.
    pending: Vec<u8>,
}

impl Printer {
    /// A printer to standard output.
    pub fn new(form: Form, null: bool, terminal: Terminal) -> Printer {
        Printer {
            out: Output::new(terminal),
            form,
            end: if null { 0 } else { b'\n' },
            watched: terminal.watched,
            owners: Owners::new(),
            entries: 0,
            pending: Vec::new(),
        }
    }

    /// The number of printed entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns true if standard output is a terminal.
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Adds an entry to the output.
    pub fn entry(&mut self, entry: &Entry<'_>, messages: &Messages) {
        self.entries += 1;
        let quoted = self.watched && self.end != 0;
        let to = &mut self.pending;
        match &self.form {
            Form::Json(fields) => {
                let line = Line {
                    entry,
                    fields,
                    owners: &self.owners,
                    messages,
                };
                // Writing to a vector does not fail, and the keys are strings.
                let _ = serde_json::to_writer(&mut *to, &line);
            }
            Form::Text(format) => {
                for part in &format.0 {
                    match part {
                        Part::Literal(bytes) => to.extend_from_slice(bytes),
                        Part::Field {
                            field: Field::Path,
                            conversion,
                        } if !quoted => {
                            let from = to.len();
                            entry.write_path(to);
                            conversion.text(to, from);
                        }
                        Part::Field { field, conversion } => {
                            match field.of(entry, &self.owners, messages) {
                                Value::Decimal(number) => conversion.decimal(number, to),
                                Value::Octal(number) => conversion.octal(number, to),
                                value => {
                                    let from = to.len();
                                    write(&value, quoted, to);
                                    conversion.text(to, from);
                                }
                            }
                        }
                    }
                }
            }
        }
        to.push(self.end);
    }

    /// Writes the pending entries.
    pub fn flush(&mut self, messages: &Messages) -> Result<(), Problem> {
        let written = match self.watched {
            true => messages.without_progress(|| self.out.write_all(&self.pending)),
            false => self.out.write_all(&self.pending),
        };
        self.pending.clear();
        Ok(written?)
    }

    /// Writes the rest, and returns the number of entries.
    pub fn end(mut self) -> Result<u64, Problem> {
        self.out.flush()?;
        Ok(self.entries)
    }
}

/// Writes a value as text.
fn write(value: &Value<'_>, quoted: bool, to: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = match value {
        Value::Unknown => to.write_all(b"?"),
        Value::None => Ok(()),
        Value::Number(number) | Value::Decimal(number) => write!(to, "{number}"),
        Value::Octal(number) => write!(to, "{number:o}"),
        Value::Path(path) if quoted && !path.is_empty() => write!(to, "{}", shown(path)),
        Value::Path(path) => to.write_all(path),
        Value::Text(text) => to.write_all(text.as_bytes()),
        Value::Name(name) => to.write_all(name.as_bytes()),
        Value::Time(time, format) => to.write_all(time.print(*format).as_bytes()),
        Value::Type(kind) => write!(to, "{}", mode::letter(*kind)),
        Value::Xattrs(all) => all.iter().enumerate().try_for_each(|(at, (name, value))| {
            let comma = if at > 0 { "," } else { "" };
            match value {
                Some(value) => write!(to, "{comma}{}={}", shown(name), shown(value)),
                None => write!(to, "{comma}{}=?", shown(name)),
            }
        }),
    };
}

fn shown(bytes: &[u8]) -> DisplayPath<'_> {
    DisplayPath(Path::new(OsStr::from_bytes(bytes)))
}

/// One JSON object.
struct Line<'a> {
    entry: &'a Entry<'a>,
    fields: &'a Fields,
    owners: &'a Owners,
    messages: &'a Messages,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for field in self.fields.iter() {
            let key = field.name().unwrap_or_default();
            match field.of(self.entry, self.owners, self.messages) {
                Value::Unknown | Value::None => map.serialize_entry(key, &())?,
                // The number has no name.
                Value::Number(_) if matches!(field, Field::User | Field::Group) => {
                    map.serialize_entry(key, &())?;
                }
                Value::Number(number) | Value::Decimal(number) => {
                    map.serialize_entry(key, &number)?
                }
                Value::Octal(number) => map.serialize_entry(key, &format!("{number:o}"))?,
                Value::Path(path) => serialize_bytes(&mut map, key, &path)?,
                Value::Text(text) => map.serialize_entry(key, &text)?,
                Value::Name(name) => map.serialize_entry(key, &*name)?,
                Value::Time(time, TimeFormat::Epoch) => {
                    map.serialize_entry(key, &time.seconds)?;
                    map.serialize_entry(&format!("{key}_ns"), &time.nanoseconds)?;
                }
                Value::Time(time, format) => map.serialize_entry(key, &time.print(format))?,
                Value::Type(kind) => map.serialize_entry(key, mode::word(kind))?,
                Value::Xattrs(all) => {
                    let all: Vec<_> = all.iter().map(Attribute).collect();
                    map.serialize_entry(key, &all)?;
                }
            }
        }
        map.end()
    }
}

/// An extended attribute in JSON.
struct Attribute<'a>(&'a Xattr);

impl Serialize for Attribute<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (name, value) = self.0;
        let mut map = to.serialize_map(None)?;
        serialize_bytes(&mut map, "name", name)?;
        match value {
            Some(value) => serialize_bytes(&mut map, "value", value)?,
            None => map.serialize_entry("value", &())?,
        }
        map.end()
    }
}
