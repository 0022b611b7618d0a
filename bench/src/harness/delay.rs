//! Delays with units: 0, 10us, 1ms, 0.5s.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A delay. In JSON it is a number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Delay(f64);

/// The longest delay in microseconds.
const LONGEST: f64 = 1e6;

impl Delay {
    /// The delay as a duration.
    pub fn time(self) -> Duration {
        Duration::from_secs_f64(self.0 / 1e6)
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        let wrong = || format!("`{text}` is no delay: write 0, or a number and us, ms or s");
        let (digits, scale) = [("us", 1.0), ("ms", 1e3), ("s", 1e6)]
            .into_iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
            .unwrap_or((text, 0.0));
        let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
        match number * scale {
            us if (0.0..=LONGEST).contains(&us) && (scale > 0.0 || number == 0.0) => Ok(Delay(us)),
            us if us > LONGEST => Err(format!("`{text}` is too long: 1s at most")),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0"),
            us if us < 1e3 => write!(f, "{us}us"),
            us if us < 1e6 => write!(f, "{}ms", us / 1e3),
            us => write!(f, "{}s", us / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_parsed_and_printed() {
        for (text, us) in [("0", 0.0), ("10us", 10.0), ("0.5ms", 500.0), ("1s", 1e6)] {
            assert_eq!(text.parse(), Ok(Delay(us)), "{text}");
        }
        for text in ["", "us", "5", "-1ms", "nans", "2s", "1h"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
        for text in ["0", "10us", "1ms", "2.5ms", "1s"] {
            assert_eq!(text.parse::<Delay>().unwrap().to_string(), text);
        }
    }
}
