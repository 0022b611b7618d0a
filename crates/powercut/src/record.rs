//! A record: bytes that follow from the name of its face and its number.
//!
//! A file has room for [`ROOM`] records. Record `n` is written at place `n % ROOM`, so a writer
//! first appends and then overwrites.

/// The bytes of a record: three pages, so that a torn record can be seen.
pub(crate) const SIZE: usize = 3 * 4096;
/// How many records a file holds.
pub(crate) const ROOM: u64 = 64;

/// The byte offset of record `number` in its file.
pub(crate) fn offset(number: u64) -> u64 {
    number % ROOM * SIZE as u64
}

/// The bytes of record `number` of a face.
pub(crate) fn bytes(face: &str, number: u64) -> Vec<u8> {
    let mut state = face
        .bytes()
        .chain(number.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    let mut bytes = Vec::with_capacity(SIZE);
    while bytes.len() < SIZE {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes
}
