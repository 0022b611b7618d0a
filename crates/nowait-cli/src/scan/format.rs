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
    Field {
        field: Field,
        conversion: Conversion,
    },
}

/// The flags, the width and the precision of a directive, as in printf(3). As in find(1), the mode
/// is a number of the conversion `%o` and the depth one of `%d`. All other values are texts (`%s`):
/// their precision is the maximum number of bytes, and only the flag `-` has an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// `-`: blanks come after the value.
    left: bool,
    /// `0`: zeros before a number instead of blanks.
    zeros: bool,
    /// `+`: a sign before a decimal number.
    plus: bool,
    /// A blank before a decimal number in place of the sign.
    blank: bool,
    /// `#`: an octal number begins with a zero.
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// The maximum width and precision of a field. Larger ones are mistakes.
const MAX_WIDTH: usize = 4096;

impl Conversion {
    /// Cuts and pads the text that was written since `from`.
    pub fn text(&self, to: &mut Vec<u8>, from: usize) {
        let len = to.len() - from;
        to.truncate(from + self.precision.map_or(len, |most| most.min(len)));
        self.pad(to, from);
    }

    /// Writes a number in decimal digits.
    pub fn decimal(&self, number: u64, to: &mut Vec<u8>) {
        let sign = match (self.plus, self.blank) {
            (true, _) => "+",
            (false, true) => " ",
            (false, false) => "",
        };
        self.number(sign, number.to_string(), to);
    }

    /// Writes a number in octal digits.
    pub fn octal(&self, number: u32, to: &mut Vec<u8>) {
        let zero = if self.alternate && number != 0 {
            "0"
        } else {
            ""
        };
        self.number("", format!("{zero}{number:o}"), to);
    }

    fn number(&self, sign: &str, digits: String, to: &mut Vec<u8>) {
        let from = to.len();
        let fewest = match self.precision {
            // Without a precision, zeros fill the width.
            None if self.zeros && !self.left => self.width.saturating_sub(sign.len()).max(1),
            None => 1,
            Some(fewest) => fewest,
        };
        to.extend_from_slice(sign.as_bytes());
        to.resize(to.len() + fewest.saturating_sub(digits.len()), b'0');
        // A zero with the precision 0 has no digits.
        if fewest > 0 || digits != "0" || self.alternate {
            to.extend_from_slice(digits.as_bytes());
        }
        self.pad(to, from);
    }

    /// Fills up what was written since `from` with blanks.
    fn pad(&self, to: &mut Vec<u8>, from: usize) {
        let missing = self.width.saturating_sub(to.len() - from);
        to.resize(to.len() + missing, b' ');
        if !self.left {
            to[from..].rotate_right(missing);
        }
    }
}

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
                conversion: Conversion::default(),
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
    let mut conversion = Conversion::default();
    loop {
        let flag = match rest.as_str().chars().next() {
            Some('-') => &mut conversion.left,
            Some('0') => &mut conversion.zeros,
            Some('+') => &mut conversion.plus,
            Some(' ') => &mut conversion.blank,
            Some('#') => &mut conversion.alternate,
            _ => break,
        };
        *flag = true;
        rest.next();
    }
    conversion.width = number(rest)?;
    if rest.as_str().starts_with('.') {
        rest.next();
        conversion.precision = Some(number(rest)?);
    }
    let letter = rest
        .next()
        .ok_or("the format ends within a directive; write %% for a percent sign")?;
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
    Ok(Part::Field { field, conversion })
}

/// Parses a width or a precision. Without digits it is 0.
fn number(rest: &mut Chars<'_>) -> Result<usize, String> {
    let mut number = 0;
    while let Some(digit) = rest
        .as_str()
        .chars()
        .next()
        .and_then(|next| next.to_digit(10))
    {
        rest.next();
        number = number * 10 + digit as usize;
        if number > MAX_WIDTH {
            return Err(format!("a width and a precision are at most {MAX_WIDTH}"));
        }
    }
    Ok(number)
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
        let field = |field, left, width| Part::Field {
            field,
            conversion: Conversion {
                left,
                width,
                ..Conversion::default()
            },
        };
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
            ("%.4097s", "4096"),
            ("%5.", "%%"),
        ] {
            let error = format.parse::<Format>().unwrap_err();
            assert!(error.contains(tip), "{format}: {error}");
        }
    }
}
