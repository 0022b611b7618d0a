//! Numbers of files as people write them: 500, 10k, 1M.

use std::str::FromStr;

use serde::Serialize;

/// A number of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Count(pub u64);

/// The largest number: the metadata of the files must fit into memory.
const LARGEST: u64 = 10_000_000;

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let wrong = || {
            format!(
                "`{text}` is no number of files: write one from 1 to 10M, with k or M if you like"
            )
        };
        let (digits, scale) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
            _ => (text, 1),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        match number.checked_mul(scale) {
            Some(n @ 1..=LARGEST) => Ok(Count(n)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_parsed() {
        for (text, n) in [
            ("500", 500),
            ("10k", 10_000),
            ("50K", 50_000),
            ("1M", 1_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Count(n)), "{text}");
        }
        for text in ["", "k", "0", "-1", "1.5k", "11M", "99999999999999999999"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }
}
