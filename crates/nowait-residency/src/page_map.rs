//! A page map: the cached pages of a range. Long runs are stored as runs, short ones as bits.
//!
//! ```text
//!   pages    0 ........ 9999 | 10000 .. 10255 | 10256 ............. 536870911
//!   pieces   Resident        | Mixed: 4 words | Missing
//! ```
//!
//! A hole of terabytes is one piece. A cache of single pages takes one bit for each page.

use crate::sys::cast::to_usize;

use std::iter::FusedIterator;
use std::ops::Range;

/// The pages of a byte range that were cached when they were queried.
///
/// The range is clipped to the file's pages. The map takes a few bytes for each run of pages, and
/// at most little more than one bit for each page.
#[derive(Clone, Debug)]
pub struct PageMap {
    range: Range<u64>,
    /// The size of the file.
    size: u64,
    page: u64,
    cached: u64,
    unasked: u64,
    pieces: Vec<Piece>,
}

/// Pages from page number `first` up to the next piece's first.
#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    pages: Pages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pages {
    Missing,
    Resident,
    /// One bit for each page. The first page has the lowest bit of the first word.
    Mixed(Box<[u64]>),
}

/// A part of a page map that is completely cached, or not cached at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The byte range in the file.
    pub range: Range<u64>,
    /// True if the bytes are in the page cache.
    pub resident: bool,
}

impl PageMap {
    /// The byte range of the map. It is empty if the queried range has no page of the file. It is a
    /// part of the file, or of its last page after the end of the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The size of a page in bytes.
    pub fn page_size(&self) -> u64 {
        self.page
    }

    /// The number of pages that the range touches.
    pub fn pages(&self) -> u64 {
        self.end() - self.first()
    }

    /// The number of cached pages.
    pub fn cached(&self) -> u64 {
        self.cached
    }

    /// The number of pages in large holes that were not asked about. They count as not cached. Only
    /// mincore(2) leaves pages unasked (see [the crate](crate)).
    pub fn unasked(&self) -> u64 {
        self.unasked
    }

    /// The number of bytes of the file from the begin of the range on that are cached without a
    /// gap. See [`resident_prefix`](crate::resident_prefix).
    pub fn resident_prefix(&self) -> u64 {
        let first = self.runs().next().filter(|run| run.resident);
        let end = first.map_or(0, |run| run.range.end.min(self.size));
        end.saturating_sub(self.range.start)
    }

    /// Returns true if the page that contains byte `offset` of the file is cached. Returns false
    /// beyond the range.
    pub fn is_resident(&self, offset: u64) -> bool {
        let page = offset / self.page;
        (self.first()..self.end()).contains(&page) && self.stretch(self.piece_of(page), page).1
    }

    /// The range as alternating runs, in order and without gaps. The first run begins and the last
    /// run ends where the range does, even within a page.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            map: self,
            piece: 0,
            page: self.first(),
        }
    }

    /// The cached byte ranges, in order.
    pub fn resident(&self) -> impl FusedIterator<Item = Range<u64>> + '_ {
        self.runs().filter(|run| run.resident).map(|run| run.range)
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

    /// The end of the run of equal pages within the piece, from `page` on, and true if they are
    /// cached.
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
        // Bits that differ from the page's are 1.
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
    /// Moves to the end of the current stretch. Returns true if that is cached.
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
        // The next piece may continue the run.
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

/// A page map under construction, from the first page to the last.
pub(crate) struct Builder {
    map: PageMap,
    /// The next page.
    next: u64,
    /// The index of the first piece that has not been considered for conversion to bits.
    unconverted: usize,
}

/// The number of consecutive runs after which conversion to bits is considered.
const MANY: usize = 64;

impl Builder {
    pub(crate) fn new(range: Range<u64>, size: u64, page: u64) -> Builder {
        Builder {
            next: range.start / page,
            map: PageMap {
                range,
                size,
                page,
                cached: 0,
                unasked: 0,
                pieces: Vec::new(),
            },
            unconverted: 0,
        }
    }

    /// Adds pages, all resident or all not.
    pub(crate) fn push(&mut self, pages: u64, resident: bool) {
        if pages == 0 {
            return;
        }
        let first = self.next;
        self.next += pages;
        if resident {
            self.map.cached += pages;
        }
        let alike = match self.map.pieces.last() {
            Some(last) if self.map.pieces.len() > self.unconverted => match last.pages {
                Pages::Missing => !resident,
                Pages::Resident => resident,
                Pages::Mixed(_) => false,
            },
            _ => false,
        };
        if alike {
            return;
        }
        if self.map.pieces.len() - self.unconverted == MANY {
            self.convert(first);
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

    /// Adds pages in a hole that was not asked about.
    pub(crate) fn skip(&mut self, pages: u64) {
        self.map.unasked += pages;
        self.push(pages, false);
    }

    /// Converts the runs from `unconverted` on, which end at page `end`, to bits if those are smaller.
    fn convert(&mut self, end: u64) {
        let runs = &self.map.pieces[self.unconverted..];
        let first = runs[0].first;
        let words = (end - first).div_ceil(64);
        if words * 8 < size_of_val(runs) as u64 {
            let mut bits = vec![0u64; to_usize(words)].into_boxed_slice();
            let ends = runs[1..].iter().map(|p| p.first).chain([end]);
            for (piece, end) in runs.iter().zip(ends) {
                if piece.pages == Pages::Resident {
                    for at in piece.first - first..end - first {
                        bits[to_usize(at) / 64] |= 1 << (at % 64);
                    }
                }
            }
            self.map.pieces.truncate(self.unconverted);
            self.map.pieces.push(Piece {
                first,
                pages: Pages::Mixed(bits),
            });
        }
        self.unconverted = self.map.pieces.len();
    }

    /// Returns the map. All of its pages must have been added.
    pub(crate) fn finish(mut self) -> PageMap {
        if self.map.pieces.len() > self.unconverted {
            self.convert(self.next);
        }
        self.map.pieces.shrink_to_fit();
        self.map
    }
}
