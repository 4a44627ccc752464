//! Framing of sentences on a serial line (IEC 61162-1, NMEA 0183): `$`, printable characters, `*`,
//! and two hexadecimal digits of the exclusive or of the characters; a leading digit 0 may be
//! missing. A lost, added or changed character invalidates only the sentence that contains it.
//! Pure.

use horolog_time::{Monotonic, Timestamp};

/// Most characters between `$` and `*`. The standard allows 82 for the whole sentence; receivers
/// with many decimals send more.
pub(super) const TEXT_MAX: usize = 120;

/// Counts of sentences on the line, valid and damaged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SentenceCounts {
    /// Sentences with the right checksum.
    pub good: u64,
    /// Sentences with a wrong checksum.
    pub checksum: u64,
    /// Sentences without a checksum.
    pub no_checksum: u64,
    /// Sentences that were cut off or contained an invalid character.
    pub garbled: u64,
    /// Sentences longer than the maximum.
    pub overlong: u64,
}

impl SentenceCounts {
    /// Returns the number of damaged sentences.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.checksum + self.no_checksum + self.garbled + self.overlong
    }

    /// Returns the counts since `earlier`, of the same line; all counts if the line was reopened in
    /// between.
    pub(crate) const fn since(&self, earlier: &Self) -> Self {
        const fn count_since(now: u64, earlier: u64) -> u64 {
            match now.checked_sub(earlier) {
                Some(more) => more,
                None => now,
            }
        }
        Self {
            good: count_since(self.good, earlier.good),
            checksum: count_since(self.checksum, earlier.checksum),
            no_checksum: count_since(self.no_checksum, earlier.no_checksum),
            garbled: count_since(self.garbled, earlier.garbled),
            overlong: count_since(self.overlong, earlier.overlong),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FramerState {
    /// Outside of a sentence.
    Search,
    /// Between `$` and `*`.
    Text,
    /// After `*`; holds the first digit once it has arrived.
    Checksum(Option<u8>),
}

/// Assembler of sentences, character by character.
#[derive(Clone, Debug)]
pub struct SentenceFramer {
    state: FramerState,
    text: [u8; TEXT_MAX],
    length: usize,
    began: Timestamp<Monotonic>,
    counts: SentenceCounts,
}

impl Default for SentenceFramer {
    fn default() -> Self {
        Self {
            state: FramerState::Search,
            text: [0; TEXT_MAX],
            length: 0,
            began: Timestamp::from_ns(0),
            counts: SentenceCounts::default(),
        }
    }
}

impl SentenceFramer {
    /// Processes a character that arrived at `at`. Returns the text between `$` and `*` and the
    /// arrival time of `$` if the character completes a valid sentence, otherwise `None`.
    pub fn push_byte(
        &mut self,
        byte: u8,
        at: Timestamp<Monotonic>,
    ) -> Option<(&str, Timestamp<Monotonic>)> {
        if byte == b'$' {
            // Nothing is lost between two consecutive sentences.
            if self.state != FramerState::Search && self.length > 0 {
                self.counts.garbled += 1;
            }
            (self.state, self.length, self.began) = (FramerState::Text, 0, at);
            return None;
        }
        match self.state {
            FramerState::Search => {}
            FramerState::Text if byte == b'*' => self.state = FramerState::Checksum(None),
            FramerState::Text if matches!(byte, b'\r' | b'\n') && self.length > 0 => {
                self.reject(|counts| &mut counts.no_checksum);
            }
            FramerState::Text if !matches!(byte, b' '..=b'~') => {
                self.reject(|counts| &mut counts.garbled);
            }
            FramerState::Text => match self.text.get_mut(self.length) {
                Some(slot) => {
                    *slot = byte;
                    self.length += 1;
                }
                None => self.reject(|counts| &mut counts.overlong),
            },
            FramerState::Checksum(first) => match (hexadecimal(byte), first) {
                // Some receivers omit a leading zero.
                (None, Some(only)) if matches!(byte, b'\r' | b'\n') => return self.finish(only),
                (None, _) => self.reject(|counts| &mut counts.garbled),
                (digit, None) => self.state = FramerState::Checksum(digit),
                (Some(second), Some(first)) => return self.finish(first << 4 | second),
            },
        }
        None
    }

    fn reject(&mut self, count: impl FnOnce(&mut SentenceCounts) -> &mut u64) {
        *count(&mut self.counts) += 1;
        self.state = FramerState::Search;
    }

    fn finish(&mut self, checksum: u8) -> Option<(&str, Timestamp<Monotonic>)> {
        self.state = FramerState::Search;
        let text = &self.text[..self.length];
        if text.iter().fold(0, |sum, byte| sum ^ byte) != checksum {
            self.counts.checksum += 1;
            return None;
        }
        self.counts.good += 1;
        // Printable ASCII, like all accepted characters.
        std::str::from_utf8(text).ok().map(|text| (text, self.began))
    }

    /// Returns the text of the last sentence, as far as it was received.
    pub(super) fn text(&self) -> &str {
        // Printable ASCII, like all accepted characters.
        str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }

    /// Returns the counts so far.
    #[must_use]
    pub const fn counts(&self) -> SentenceCounts {
        self.counts
    }
}

const fn hexadecimal(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sentence with this text.
    pub(crate) fn sentence(text: &str) -> String {
        let checksum = text.bytes().fold(0, |sum, byte| sum ^ byte);
        format!("${text}*{checksum:02X}\r\n")
    }

    fn texts(framer: &mut SentenceFramer, bytes: &[u8]) -> Vec<String> {
        let at = Timestamp::from_ns(7);
        bytes
            .iter()
            .filter_map(|&byte| framer.push_byte(byte, at).map(|(text, _)| text.to_owned()))
            .collect()
    }

    const RMC: &str = "GNRMC,081253.00,A,3413.1,N,10855.2,E,0.0,,270219,,,A";

    #[test]
    fn a_sentence_is_found_between_others_bytes() {
        let mut framer = SentenceFramer::default();
        let line = format!("\u{b5}b noise{}junk*5A{}", sentence(RMC), sentence("GPZDA,1"));
        assert_eq!(texts(&mut framer, line.as_bytes()), [RMC, "GPZDA,1"]);
        assert_eq!(framer.counts(), SentenceCounts { good: 2, ..SentenceCounts::default() });
    }

    #[test]
    fn small_digits_and_a_missing_end_of_line_are_taken() {
        let line = sentence(RMC).to_lowercase().replace(&RMC.to_lowercase(), RMC);
        assert_eq!(texts(&mut SentenceFramer::default(), line.trim_end().as_bytes()), [RMC]);
    }

    #[test]
    fn the_first_digit_of_a_checksum_may_be_missing_where_it_is_0() {
        let mut framer = SentenceFramer::default();
        let (short, long) = ("GPZDA,h", "GPZDA,0");
        assert!(sentence(short).contains("*0") && !sentence(long).contains("*0"));
        let line = format!("{}{}", sentence(short).replace("*0", "*"), sentence(long));
        assert_eq!(texts(&mut framer, line.as_bytes()), [short, long]);
        let cut = sentence(long).replace("\r\n", "");
        let line = format!("{}\r\n", &cut[..cut.len() - 1]);
        assert_eq!(texts(&mut framer, line.as_bytes()), [""; 0]);
        assert_eq!(framer.counts().checksum, 1);
    }

    #[test]
    fn each_kind_of_damage_costs_one_sentence_and_is_counted() {
        let good = sentence(RMC);
        let (body, rest) = good.split_at(20);
        let damaged = [
            (format!("{body}0{rest}"), "inserted"),
            (format!("{body}{}", &rest[1..]), "lost"),
            (good.replace("0812", "0813"), "changed"),
        ];
        for (line, what) in damaged {
            let mut framer = SentenceFramer::default();
            assert_eq!(texts(&mut framer, format!("{line}{good}").as_bytes()), [RMC], "{what}");
            let expected = SentenceCounts { good: 1, checksum: 1, ..SentenceCounts::default() };
            assert_eq!(framer.counts(), expected, "{what}");
        }
        let mut framer = SentenceFramer::default();
        let without = format!("${RMC}\r\n${RMC}\n{good}");
        assert_eq!(texts(&mut framer, without.as_bytes()), [RMC]);
        let expected = SentenceCounts { good: 1, no_checksum: 2, ..SentenceCounts::default() };
        assert_eq!(framer.counts(), expected);
        let garbled = [format!("{body}\0{rest}"), body.to_owned(), good.replace('*', "*x")];
        for line in garbled {
            let mut framer = SentenceFramer::default();
            assert_eq!(texts(&mut framer, format!("{line}{good}").as_bytes()), [RMC], "{line:?}");
            assert_eq!((framer.counts().good, framer.counts().garbled), (1, 1), "{line:?}");
        }
        let mut framer = SentenceFramer::default();
        let noise = format!("{}{good}", "$".repeat(300));
        assert_eq!(texts(&mut framer, noise.as_bytes()), [RMC]);
        assert_eq!(framer.counts(), SentenceCounts { good: 1, ..SentenceCounts::default() });
        let mut framer = SentenceFramer::default();
        let long = "x".repeat(TEXT_MAX + 1);
        assert_eq!(texts(&mut framer, format!("${long}{good}").as_bytes()), [RMC]);
        assert_eq!(framer.counts().overlong, 1);
    }

    #[test]
    fn a_sentence_began_with_its_first_character() {
        let mut framer = SentenceFramer::default();
        let line = sentence("GPZDA,1");
        let began = line.bytes().enumerate().find_map(|(index, byte)| {
            let at = Timestamp::from_ns(index as i64 + 100);
            framer.push_byte(byte, at).map(|(_, began)| began)
        });
        assert_eq!(began, Some(Timestamp::from_ns(100)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_a_sentence_behind_them_is_found(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framer = SentenceFramer::default();
            texts(&mut framer, &noise);
            prop_assert_eq!(texts(&mut framer, sentence(RMC).as_bytes()), [RMC]);
        }

        #[test]
        fn one_changed_bit_is_never_believed(at in 1usize..RMC.len(), bit in 0u8..8) {
            let mut line = sentence(RMC).into_bytes();
            line[at] ^= 1 << bit;
            prop_assert!(texts(&mut SentenceFramer::default(), &line).iter().all(|text| text != RMC));
            let believed = texts(&mut SentenceFramer::default(), &line);
            // What is left of it behind a new '$' has another checksum.
            prop_assert!(believed.is_empty(), "{:?}", believed);
        }
    }
}
