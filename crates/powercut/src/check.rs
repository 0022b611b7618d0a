//! Compares the files of a directory with what their writer has acknowledged.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::record::{ROOM, SIZE, bytes, offset};

/// Fails if an acknowledged record is missing or torn, and if none was acknowledged. Prints how
/// many records of each face were found.
pub(crate) fn check(directory: &Path, log: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let acknowledged = acknowledged(&std::fs::read_to_string(log)?);
    if acknowledged.is_empty() {
        return Err("no record was acknowledged".into());
    }
    let mut lost = Vec::new();
    for (face, last) in acknowledged {
        let file = match std::fs::File::open(directory.join(&face)) {
            Ok(file) => file,
            Err(error) => {
                lost.push(format!("{face}: {error}, after record {last}"));
                continue;
            }
        };
        // The record after the last one may have been on its way to the place of an older one.
        let first = (last + 2).saturating_sub(ROOM);
        for number in first..=last {
            let mut found = vec![0; SIZE];
            let read = file.read_exact_at(&mut found, offset(number));
            if read.is_err() || found != bytes(&face, number) {
                let after = number_of(&face, number, &found);
                lost.push(format!("{face}: record {number} of {last} {after}"));
            }
        }
        println!("{face}: {last} records acknowledged");
    }
    if lost.is_empty() {
        return Ok(());
    }
    Err(lost.join("\n").into())
}

/// Describes the bytes in the place of a missing record.
fn number_of(face: &str, number: u64, found: &[u8]) -> &'static str {
    match number.checked_sub(ROOM) {
        Some(before) if found == bytes(face, before) => "is the one before it",
        _ if found.iter().all(|byte| *byte == 0) => "is missing",
        _ => "is torn",
    }
}

/// The number of the last acknowledged record of each face. A line without an end is ignored.
fn acknowledged(log: &str) -> BTreeMap<String, u64> {
    let mut last = BTreeMap::new();
    for line in log.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else {
            continue;
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["ACK", face, number] = words[..]
            && let Ok(number) = number.parse()
        {
            last.insert(face.to_owned(), number);
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let path = directory.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        for number in 0..=ROOM {
            file.write_all_at(&bytes("file", number), offset(number))
                .unwrap();
        }
        std::fs::write(
            &log,
            format!("boot\r\nACK file 5\r\nACK file {ROOM}\r\nACK fi"),
        )
        .unwrap();
        check(directory.path(), &log).unwrap();

        file.write_all_at(&[0; 4096], offset(7) + 4096).unwrap();
        let error = check(directory.path(), &log).unwrap_err().to_string();
        assert_eq!(error, format!("file: record 7 of {ROOM} is torn"));

        std::fs::write(&log, format!("ACK file {}\n", ROOM + 1)).unwrap();
        let error = check(directory.path(), &log).unwrap_err().to_string();
        assert!(error.contains(&format!(
            "record {} of {} is the one before it",
            ROOM + 1,
            ROOM + 1
        )));
    }
}
