//! Sizes in bytes with an optional unit: 512, 4K, 256M, 4G. Units are powers of 1024.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text for sizes of 2^64 bytes or more, as in du(1). A sum that does not fit into 64 bits
/// stays at `u64::MAX`. No file is that large.
pub const INFINITY: &str = "Infinity";

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || {
            format!(
                "`{text}` is not a size: write a number of bytes, or a number with K, M, G or T"
            )
        };
        let upper = text.trim().to_ascii_uppercase();
        let bare = upper.strip_suffix('B').unwrap_or(&upper);
        let bare = bare.strip_suffix('I').unwrap_or(bare);
        let (digits, shift) = UNITS
            .iter()
            .find_map(|&(unit, shift)| Some((bare.strip_suffix(unit)?, shift)))
            .unwrap_or((bare, 0));
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        match number.checked_mul(1 << shift) {
            Some(0) => Err("a size must be greater than 0".into()),
            Some(bytes) if bytes <= i64::MAX as u64 => Ok(Size(bytes)),
            _ => Err(format!("`{text}` is larger than the largest possible file")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, shift)| self.0 >= 1 << shift) {
            _ if self.0 == u64::MAX => f.write_str(INFINITY),
            Some((unit, shift)) if self.0.is_multiple_of(1 << shift) => {
                write!(f, "{}{unit}", self.0 >> shift)
            }
            Some((unit, shift)) => {
                write!(f, "{:.1}{unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_printed() {
        for (text, bytes) in [
            ("512", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("256M", 256 << 20),
            ("4G", 4 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "K", "4X", "-1", "0", "99999999T", "1.5G"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(4096).to_string(), "4K");
        assert_eq!(Size(1_500_000).to_string(), "1.4M");
        assert_eq!(Size(512).to_string(), "512");
        assert_eq!(Size(u64::MAX).to_string(), INFINITY);
    }
}
