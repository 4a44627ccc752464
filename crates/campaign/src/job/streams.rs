//! What a process says on standard output and on standard error. Of each the end is kept, whatever
//! a process writes; nothing waits for it.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Bytes that are kept of standard output: a server's state is one long line.
const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes that are kept of standard error.
const ERRORS_BYTES: usize = 4 << 10;
/// Bytes that are taken at a time, of one stream at most: who writes without end is not listened to
/// without end.
const TAKEN_MAX: usize = 4 << 20;
/// Characters of a line that is shown.
const LINE_MAX: usize = 200;

/// Both streams of one process.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) output: Stream,
    pub(super) errors: Stream,
}

/// The end of what one stream said.
#[derive(Debug)]
pub(super) struct Stream {
    from: UnixStream,
    kept: Vec<u8>,
    max: usize,
    /// Whether a line was ended since somebody asked for it.
    is_news: bool,
}

impl Streams {
    /// Both with the ends that a process writes to: standard output's and standard error's.
    pub(super) fn open() -> io::Result<(Self, [OwnedFd; 2])> {
        let (output, to_output) = Stream::open(OUTPUT_BYTES)?;
        let (errors, to_errors) = Stream::open(ERRORS_BYTES)?;
        Ok((Self { output, errors }, [to_output, to_errors]))
    }

    /// Takes in what was said.
    pub(super) fn take(&mut self) {
        self.output.take();
        self.errors.take();
    }
}

impl Stream {
    fn open(max: usize) -> io::Result<(Self, OwnedFd)> {
        let (from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        Ok((Self { from, kept: Vec::new(), max, is_news: false }, to.into()))
    }

    fn take(&mut self) {
        let mut bytes = [0; 16 << 10];
        let mut taken = 0;
        // Nothing more for now, the end, or an error, after which nothing comes either.
        while let Ok(length @ 1..) = self.from.read(&mut bytes) {
            self.keep(&bytes[..length]);
            taken += length;
            if taken > TAKEN_MAX {
                break;
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.is_news |= bytes.contains(&b'\n');
        self.kept.extend_from_slice(bytes);
        // Cut seldom, so that each byte is moved seldom.
        if self.kept.len() > 2 * self.max {
            self.kept.drain(..self.kept.len() - self.max);
        }
    }

    /// What is kept, as text that can be shown on several lines.
    pub(super) fn text(&self) -> String {
        let kept = &self.kept[self.kept.len().saturating_sub(self.max)..];
        let text = String::from_utf8_lossy(kept);
        text.chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>().trim().to_owned()
    }

    /// The last line that is not empty, or what it goes on from where that stands above it.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = self.text();
        let mut last = text.lines().rev().filter(|line| !line.trim().is_empty()).peekable();
        let any = last.peek().copied();
        last.find(|line| !is_continued(line)).or(any).map(ToOwned::to_owned)
    }

    /// The same, cut to what can be shown, where a line was ended since this was asked.
    pub(super) fn news(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.is_news).then(|| self.last_line()).flatten()?;
        Some(line.chars().take(LINE_MAX).collect())
    }
}

/// Whether a line goes on from the one above it, which says more by itself.
fn is_continued(line: &str) -> bool {
    line.starts_with([' ', '\u{2192}'])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn said(text: &[u8]) -> Streams {
        let (mut streams, [_, errors]) = Streams::open().unwrap();
        let mut to = UnixStream::from(errors);
        to.set_nonblocking(true).unwrap();
        for part in text.chunks(1 << 12) {
            to.write_all(part).unwrap();
            streams.take();
        }
        streams
    }

    #[test]
    fn the_end_is_kept() {
        let mut streams = said(b"one\n\x1b[1mtwo \xff\n\n");
        assert_eq!(streams.errors.text(), "one\n[1mtwo \u{fffd}");
        assert_eq!(streams.errors.news().as_deref(), Some("[1mtwo \u{fffd}"));
        assert_eq!(streams.errors.news(), None);
        assert_eq!(streams.output.last_line(), None);
    }

    #[test]
    fn what_goes_on_from_the_line_above_is_not_shown_alone() {
        let mut streams = said("one\nwarning: two\n  and more\n  \u{2192} Look.\n".as_bytes());
        assert_eq!(streams.errors.news().as_deref(), Some("warning: two"));
        assert_eq!(
            said("\u{2192} Look.\n".as_bytes()).errors.last_line().as_deref(),
            Some("\u{2192} Look.")
        );
    }

    #[test]
    fn memory_is_bounded() {
        let long = b"0123456789abcde\n".repeat(1 << 12);
        let streams = said(&long);
        assert!(streams.errors.kept.len() <= 2 * ERRORS_BYTES);
        assert_eq!(streams.errors.text().len(), ERRORS_BYTES - 1);
        assert_eq!(streams.errors.last_line().as_deref(), Some("0123456789abcde"));
    }
}
