//! A page map: which pages of a range are cached, as runs where they are long and as bits where
//! they are short.
//!
//! ```text
//!   pages    0 ........ 9999 | 10000 .. 10255 | 10256 ............. 536870911
//!   pieces   Resident        | Mixed: 4 words | Missing
//! ```
//!
//! So a hole of terabytes is one piece, and a cache of single pages takes a bit for each.

use crate::cast::to_usize;

use std::iter::FusedIterator;
use std::ops::Range;

/// Which pages of a byte range of a file were cached when they were asked about.
///
/// The range is what lies within the file of the range that was asked about. Takes a few bytes for
/// each run of pages, and never much more than a bit for each page.
#[derive(Clone, Debug)]
pub struct PageMap {
    range: Range<u64>,
    page: u64,
    cached: u64,
    unasked: u64,
    pieces: Vec<Piece>,
}

/// Pages from `first` (its number in the file) up to the next piece's first.
#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    pages: Pages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pages {
    Missing,
    Resident,
    /// A bit for each page, the first in the lowest of the first word.
    Mixed(Box<[u64]>),
}

/// A stretch of a page map that is cached, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its bytes in the file.
    pub range: Range<u64>,
    /// Whether they are in the page cache.
    pub resident: bool,
}

impl PageMap {
    /// The bytes that it is about. Empty if nothing of the range lies within the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u64 {
        self.page
    }

    /// How many pages the range touches.
    pub fn pages(&self) -> u64 {
        self.end() - self.first()
    }

    /// How many of them are cached.
    pub fn cached(&self) -> u64 {
        self.cached
    }

    /// How many of them lie in large holes that were not asked about, and count as not cached; only
    /// where mincore(2) alone can be asked (see [the module](super)).
    pub fn unasked(&self) -> u64 {
        self.unasked
    }

    /// Whether the page with this byte of the file is cached; `false` beyond the range.
    pub fn is_resident(&self, offset: u64) -> bool {
        let page = offset / self.page;
        (self.first()..self.end()).contains(&page) && self.stretch(self.piece_of(page), page).1
    }

    /// The range as alternating runs, in order and without gaps. The first and the last end where
    /// the range does, also in the middle of a page.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            map: self,
            piece: 0,
            page: self.first(),
        }
    }

    /// The byte ranges that are cached, in order.
    pub fn resident(&self) -> impl FusedIterator<Item = Range<u64>> + '_ {
        self.runs().filter(|run| run.resident).map(|run| run.range)
    }

    /// Fills memory of the caller's with a bit for each page, from the page with byte `offset` of
    /// the file on, the first page in the lowest bit of the first byte. Bits of pages outside the
    /// range are 0.
    ///
    /// ```
    /// use nowait::residency::page_map;
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// if let Some(map) = page_map(&file, 0..u64::MAX)?.known() {
    ///     let mut bits = [0u8; 16];
    ///     map.bitmap(0, &mut bits);
    ///     assert_eq!(bits[0] & 1 == 1, map.is_resident(0));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bitmap(&self, offset: u64, bits: &mut [u8]) {
        bits.fill(0);
        let from = offset / self.page;
        let end = self.end().min(from.saturating_add(bits.len() as u64 * 8));
        let mut page = from.max(self.first());
        if page >= end {
            return;
        }
        let mut piece = self.piece_of(page);
        while page < end {
            let (stop, resident) = self.stretch(piece, page);
            if resident {
                for at in page - from..stop.min(end) - from {
                    bits[to_usize(at) / 8] |= 1 << (at % 8);
                }
            }
            if stop == self.end_of(piece) {
                piece += 1;
            }
            page = stop;
        }
    }

    fn first(&self) -> u64 {
        self.range.start / self.page
    }

    /// The first page beyond it.
    fn end(&self) -> u64 {
        if self.range.is_empty() {
            self.first()
        } else {
            self.range.end.div_ceil(self.page)
        }
    }

    fn end_of(&self, piece: usize) -> u64 {
        self.pieces
            .get(piece + 1)
            .map_or(self.end(), |next| next.first)
    }

    fn piece_of(&self, page: u64) -> usize {
        self.pieces.partition_point(|piece| piece.first <= page) - 1
    }

    /// How far pages like this one go within its piece, and whether they are cached.
    fn stretch(&self, piece: usize, page: u64) -> (u64, bool) {
        let end = self.end_of(piece);
        let Piece { first, pages } = &self.pieces[piece];
        let words = match pages {
            Pages::Missing => return (end, false),
            Pages::Resident => return (end, true),
            Pages::Mixed(words) => words,
        };
        let (mut word, bit) = (((page - first) / 64) as usize, (page - first) % 64);
        let resident = words[word] >> bit & 1 == 1;
        // What differs is 1.
        let differing = |word: u64| if resident { !word } else { word };
        let mut rest = differing(words[word]) & (!0 << bit);
        while rest == 0 {
            word += 1;
            match words.get(word) {
                Some(next) => rest = differing(*next),
                None => return (end, resident),
            }
        }
        let stop = first + word as u64 * 64 + u64::from(rest.trailing_zeros());
        (stop.min(end), resident)
    }
}

/// The runs of a [`PageMap`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    map: &'a PageMap,
    piece: usize,
    page: u64,
}

impl Runs<'_> {
    /// Goes on to the end of a stretch and says what it was.
    fn advance(&mut self) -> bool {
        let (stop, resident) = self.map.stretch(self.piece, self.page);
        if stop == self.map.end_of(self.piece) {
            self.piece += 1;
        }
        self.page = stop;
        resident
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let (map, first, end) = (self.map, self.page, self.map.end());
        if first == end {
            return None;
        }
        let resident = self.advance();
        // Where one piece ends the next may go on.
        while self.page < end && map.stretch(self.piece, self.page).1 == resident {
            self.advance();
        }
        let bytes = first * map.page..self.page.saturating_mul(map.page);
        Some(Run {
            range: bytes.start.max(map.range.start)..bytes.end.min(map.range.end),
            resident,
        })
    }
}

impl FusedIterator for Runs<'_> {}

/// A page map that is being made, from the front to the back.
pub(super) struct Builder {
    map: PageMap,
    /// The next page.
    next: u64,
    /// The first of `pieces` that bits have not been considered for.
    loose: usize,
}

/// So many runs in a row are looked at for whether bits would be smaller.
const LOOSE: usize = 64;

impl Builder {
    pub(super) fn new(range: Range<u64>, page: u64) -> Builder {
        Builder {
            next: range.start / page,
            map: PageMap {
                range,
                page,
                cached: 0,
                unasked: 0,
                pieces: Vec::new(),
            },
            loose: 0,
        }
    }

    /// The next so many pages.
    pub(super) fn push(&mut self, pages: u64, resident: bool) {
        if pages == 0 {
            return;
        }
        let first = self.next;
        self.next += pages;
        if resident {
            self.map.cached += pages;
        }
        let alike = match self.map.pieces.last() {
            Some(last) if self.map.pieces.len() > self.loose => match last.pages {
                Pages::Missing => !resident,
                Pages::Resident => resident,
                Pages::Mixed(_) => false,
            },
            _ => false,
        };
        if alike {
            return;
        }
        if self.map.pieces.len() - self.loose == LOOSE {
            self.tie(first);
        }
        self.map.pieces.push(Piece {
            first,
            pages: if resident {
                Pages::Resident
            } else {
                Pages::Missing
            },
        });
    }

    /// The next so many pages, in a hole that was not asked about.
    pub(super) fn skip(&mut self, pages: u64) {
        self.map.unasked += pages;
        self.push(pages, false);
    }

    /// Makes bits of the loose runs, which end at page `end`, if that is smaller.
    fn tie(&mut self, end: u64) {
        let loose = &self.map.pieces[self.loose..];
        let first = loose[0].first;
        let words = (end - first).div_ceil(64);
        if words * 8 < size_of_val(loose) as u64 {
            let mut bits = vec![0u64; to_usize(words)].into_boxed_slice();
            let ends = loose[1..].iter().map(|p| p.first).chain([end]);
            for (piece, end) in loose.iter().zip(ends) {
                if piece.pages == Pages::Resident {
                    for at in piece.first - first..end - first {
                        bits[to_usize(at) / 64] |= 1 << (at % 64);
                    }
                }
            }
            self.map.pieces.truncate(self.loose);
            self.map.pieces.push(Piece {
                first,
                pages: Pages::Mixed(bits),
            });
        }
        self.loose = self.map.pieces.len();
    }

    /// The map, when all of its pages were pushed.
    pub(super) fn finish(mut self) -> PageMap {
        if self.map.pieces.len() > self.loose {
            self.tie(self.next);
        }
        self.map.pieces.shrink_to_fit();
        self.map
    }
}
