//! Delays with units: 0, 10us, 1ms, 1s.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A delay. In JSON it is a number of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Delay(f64);

impl Delay {
    /// The delay as a duration.
    pub fn time(self) -> Duration {
        Duration::from_secs_f64(self.0 / 1e6)
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        match humantime::parse_duration(text) {
            Ok(time) if time <= Duration::from_secs(1) => Ok(Delay(time.as_nanos() as f64 / 1e3)),
            Ok(_) => Err(format!("`{text}` is too long: 1s at most")),
            Err(_) => Err(format!(
                "`{text}` is no delay: write 0, or a number and us, ms or s"
            )),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0.0 => f.write_str("0"),
            _ => humantime::format_duration(self.time()).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_parsed_and_printed() {
        for (text, us) in [("0", 0.0), ("10us", 10.0), ("20ms", 20_000.0), ("1s", 1e6)] {
            let delay: Delay = text.parse().unwrap();
            assert_eq!((delay, delay.to_string()), (Delay(us), text.into()));
        }
        for text in ["", "us", "5", "-1ms", "nans", "2s", "1h"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }
}
