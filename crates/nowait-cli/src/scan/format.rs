//! The format of a line: text, and the values of fields.

use std::str::{Chars, FromStr};

use super::field::{Field, Fields};
use crate::file_time::{TimeFormat, Which};

/// The parts of a line, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format(pub Vec<Part>);

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes that are printed unchanged.
    Literal(Vec<u8>),
    /// A field, padded with blanks to `width` bytes: after the value if `left`, otherwise before it.
    Field {
        field: Field,
        left: bool,
        width: usize,
    },
}

/// The maximum width of a field. Larger ones are mistakes.
const MAX_WIDTH: usize = 4096;

impl Format {
    /// The fields, separated by tabs.
    pub fn tabbed(fields: &Fields) -> Format {
        let mut parts = Vec::new();
        for field in fields.iter() {
            if !parts.is_empty() {
                parts.push(Part::Literal(b"\t".to_vec()));
            }
            parts.push(Part::Field {
                field,
                left: false,
                width: 0,
            });
        }
        Format(parts)
    }

    /// The printed fields.
    pub fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        self.0.iter().filter_map(|part| match part {
            Part::Field { field, .. } => Some(*field),
            Part::Literal(_) => None,
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.chars();
        while let Some(letter) = rest.next() {
            match letter {
                '\\' => literal.push(escape(&mut rest)?),
                '%' if rest.as_str().starts_with('%') => {
                    rest.next();
                    literal.push(b'%');
                }
                '%' => {
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(directive(&mut rest)?);
                }
                other => literal.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Format(parts))
    }
}

/// Parses what follows a backslash.
fn escape(rest: &mut Chars<'_>) -> Result<u8, String> {
    Ok(match rest.next() {
        Some('a') => 0x07,
        Some('b') => 0x08,
        Some('f') => 0x0c,
        Some('n') => b'\n',
        Some('r') => b'\r',
        Some('t') => b'\t',
        Some('v') => 0x0b,
        Some('\\') => b'\\',
        Some(digit @ '0'..='7') => {
            let mut value = digit as u32 - '0' as u32;
            for _ in 0..2 {
                let next = rest.as_str().chars().next();
                let Some(digit) = next.and_then(|next| next.to_digit(8)) else {
                    break;
                };
                rest.next();
                value = value * 8 + digit;
            }
            u8::try_from(value).map_err(|_| format!("\\{value:o} is larger than a byte"))?
        }
        Some(other) => {
            return Err(format!(
                "there is no escape `\\{other}`; write \\\\ for a backslash"
            ));
        }
        None => return Err("the format ends with a backslash; write \\\\ for a backslash".into()),
    })
}

/// Parses what follows a percent sign.
fn directive(rest: &mut Chars<'_>) -> Result<Part, String> {
    let left = rest.as_str().starts_with('-');
    if left {
        rest.next();
    }
    let mut width = 0;
    let letter = loop {
        match rest.next() {
            Some(letter) => match letter.to_digit(10) {
                Some(digit) => width = (width * 10 + digit as usize).min(MAX_WIDTH + 1),
                None => break letter,
            },
            None => {
                return Err(
                    "the format ends within a directive; write %% for a percent sign".into(),
                );
            }
        }
    };
    if width > MAX_WIDTH {
        return Err(format!("a width is at most {MAX_WIDTH}"));
    }
    let which = match letter {
        'A' => Some(Which::Accessed),
        'B' => Some(Which::Created),
        'C' => Some(Which::Changed),
        'T' => Some(Which::Modified),
        _ => None,
    };
    let field = match which {
        Some(which) => Field::Time(which, time_format(letter, rest.next())?),
        None => Field::by_letter(letter).ok_or_else(|| {
            format!("there is no directive `%{letter}`; `nowait scan --help` lists them")
        })?,
    };
    Ok(Part::Field { field, left, width })
}

/// The second letter of a time.
fn time_format(which: char, letter: Option<char>) -> Result<TimeFormat, String> {
    match letter {
        Some('@') => Ok(TimeFormat::Epoch),
        Some(letter @ ('+' | 'F' | 'Y' | 'm' | 'd' | 'H' | 'M')) => {
            Ok(TimeFormat::Strftime(letter))
        }
        _ => Err(format!("`%{which}` needs one of @ + F Y m d H M after it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        let field = |field, left, width| Part::Field { field, left, width };
        let literal = |text: &str| Part::Literal(text.as_bytes().to_vec());
        let modified = Field::Time(Which::Modified, TimeFormat::Epoch);
        let parsed: Format = r"%p\t%-8s%%\101é\0%5T@".parse().unwrap();
        assert_eq!(
            parsed.0,
            [
                field(Field::Path, false, 0),
                literal("\t"),
                field(Field::Size, true, 8),
                literal("%Aé\0"),
                field(modified, false, 5),
            ]
        );
    }

    #[test]
    fn mistakes_are_errors_that_say_what_to_write() {
        for (format, tip) in [
            ("%", "%%"),
            ("%-5", "%%"),
            ("%Q", "--help"),
            ("%T", "@ +"),
            ("%Tx", "@ +"),
            ("\\", "\\\\"),
            ("\\q", "\\\\"),
            ("\\777", "byte"),
            ("%99999999999999999999s", "4096"),
        ] {
            let error = format.parse::<Format>().unwrap_err();
            assert!(error.contains(tip), "{format}: {error}");
        }
    }
}
