//! The units in which du(1) prints sizes.

use crate::size::INFINITY;

/// The unit of printed sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole units of so many bytes, rounded up.
    Bytes(u64),
    /// A number below 1024 with the letter of its unit, rounded up: as du -h.
    Human,
}

impl Unit {
    /// Prints a size. A sum of 2^64 bytes or more is printed as du(1) prints it.
    pub fn print(self, bytes: u64) -> String {
        match self {
            _ if bytes == u64::MAX => INFINITY.to_owned(),
            Unit::Bytes(unit) => bytes.div_ceil(unit).to_string(),
            Unit::Human => human(bytes),
        }
    }
}

/// Numbers below 10 have one decimal.
fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1024;
    let mut letters = ["K", "M", "G", "T", "P"].into_iter();
    let letter = loop {
        let letter = letters.next().unwrap_or("E");
        if letter == "E" || bytes.div_ceil(unit) < 1024 {
            break letter;
        }
        unit <<= 10;
    };
    let tenths = (u128::from(bytes) * 10).div_ceil(unit.into());
    match tenths < 100 {
        true => format!("{}.{}{letter}", tenths / 10, tenths % 10),
        false => format!("{}{letter}", bytes.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_by_du() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (4096, "4.0K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024 + 1, "1.0M"),
            (u64::MAX - 1, "16E"),
            (u64::MAX, "Infinity"),
        ] {
            assert_eq!(Unit::Human.print(bytes), text, "{bytes}");
        }
        assert_eq!(Unit::Bytes(1024).print(1025), "2");
    }
}
