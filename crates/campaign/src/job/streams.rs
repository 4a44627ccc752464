//! Standard output and standard error of a process. The end of each is retained, regardless of
//! the amount written; reads do not block.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Bytes retained of standard output: a server's state is one long line.
const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes retained of standard error.
const ERRORS_BYTES: usize = 4 << 10;
/// Largest number of bytes read at a time from one stream, so that a process that writes without
/// end does not block the reader.
const TAKEN_MAX: usize = 4 << 20;
/// Largest number of characters shown of a line.
const LINE_MAX: usize = 200;

/// Both streams of one process.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) output: OutputStream,
    pub(super) errors: OutputStream,
}

/// End of the output of one stream.
#[derive(Debug)]
pub(super) struct OutputStream {
    from: UnixStream,
    buffer: Vec<u8>,
    max: usize,
    /// True if a line was completed since the last query.
    has_new_line: bool,
}

impl Streams {
    /// Opens both streams. Also returns the ends to which a process writes: standard output and
    /// standard error.
    pub(super) fn open() -> io::Result<(Self, [OwnedFd; 2])> {
        let (output, to_output) = OutputStream::open(OUTPUT_BYTES)?;
        let (errors, to_errors) = OutputStream::open(ERRORS_BYTES)?;
        Ok((Self { output, errors }, [to_output, to_errors]))
    }

    /// Reads the available output.
    pub(super) fn take(&mut self) {
        self.output.take();
        self.errors.take();
    }
}

impl OutputStream {
    fn open(max: usize) -> io::Result<(Self, OwnedFd)> {
        let (from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        Ok((Self { from, buffer: Vec::new(), max, has_new_line: false }, to.into()))
    }

    fn take(&mut self) {
        let mut bytes = [0; 16 << 10];
        let mut taken = 0;
        // Until no more data is available, the end, or an error, after which nothing follows.
        while let Ok(length @ 1..) = self.from.read(&mut bytes) {
            self.keep(&bytes[..length]);
            taken += length;
            if taken > TAKEN_MAX {
                break;
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.has_new_line |= bytes.contains(&b'\n');
        self.buffer.extend_from_slice(bytes);
        // Truncated rarely, so that each byte is moved rarely.
        if self.buffer.len() > 2 * self.max {
            self.buffer.drain(..self.buffer.len() - self.max);
        }
    }

    /// Returns the retained output as text for display on several lines.
    pub(super) fn text(&self) -> String {
        let retained = &self.buffer[self.buffer.len().saturating_sub(self.max)..];
        let text = String::from_utf8_lossy(retained);
        text.chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>().trim().to_owned()
    }

    /// Returns the last line that is not empty, or the line that it continues.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = self.text();
        let mut last = text.lines().rev().filter(|line| !line.trim().is_empty()).peekable();
        let any = last.peek().copied();
        last.find(|line| !is_continued(line)).or(any).map(ToOwned::to_owned)
    }

    /// Returns the last line, truncated for display, if a line was completed since the last call.
    pub(super) fn latest_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.has_new_line).then(|| self.last_line()).flatten()?;
        Some(line.chars().take(LINE_MAX).collect())
    }
}

/// Returns true if a line continues the one above it, which is more informative.
fn is_continued(line: &str) -> bool {
    line.starts_with([' ', '\u{2192}'])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn streams_of(text: &[u8]) -> Streams {
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
    fn the_end_is_retained() {
        let mut streams = streams_of(b"one\n\x1b[1mtwo \xff\n\n");
        assert_eq!(streams.errors.text(), "one\n[1mtwo \u{fffd}");
        assert_eq!(streams.errors.latest_line().as_deref(), Some("[1mtwo \u{fffd}"));
        assert_eq!(streams.errors.latest_line(), None);
        assert_eq!(streams.output.last_line(), None);
    }

    #[test]
    fn what_goes_on_from_the_line_above_is_not_shown_alone() {
        let mut streams =
            streams_of("one\nwarning: two\n  and more\n  \u{2192} Look.\n".as_bytes());
        assert_eq!(streams.errors.latest_line().as_deref(), Some("warning: two"));
        assert_eq!(
            streams_of("\u{2192} Look.\n".as_bytes()).errors.last_line().as_deref(),
            Some("\u{2192} Look.")
        );
    }

    #[test]
    fn memory_is_bounded() {
        let long = b"0123456789abcde\n".repeat(1 << 12);
        let streams = streams_of(&long);
        assert!(streams.errors.buffer.len() <= 2 * ERRORS_BYTES);
        assert_eq!(streams.errors.text().len(), ERRORS_BYTES - 1);
        assert_eq!(streams.errors.last_line().as_deref(), Some("0123456789abcde"));
    }
}
