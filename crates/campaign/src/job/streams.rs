//! Standard output and standard error of a process. Only the last bytes of each are retained; reads
//! do not block.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Bytes retained of standard output; the counts of a server are one long line.
const OUTPUT_BYTES: usize = 1 << 20;
/// Bytes retained of standard error.
const ERRORS_BYTES: usize = 4 << 10;
/// Largest number of bytes read at a time from one stream, so that a process that writes without
/// end does not block the reader.
const READ_BYTES_MAX: usize = 4 << 20;
/// Largest number of characters shown of a line.
const LINE_MAX: usize = 200;

/// Tails of the standard output and the standard error of one process.
#[derive(Debug)]
pub(super) struct StandardStreamTails {
    pub(super) output: OutputTail,
    pub(super) errors: OutputTail,
}

/// Tail of one output stream: its last bytes, and the end from which they are read.
#[derive(Debug)]
pub(super) struct OutputTail {
    reader: UnixStream,
    buffer: Vec<u8>,
    bytes_max: usize,
    /// True if a line was completed since the last query.
    has_new_line: bool,
}

impl StandardStreamTails {
    /// Opens both streams. Also returns the ends to which a process writes: standard output and
    /// standard error.
    pub(super) fn open() -> io::Result<(Self, [OwnedFd; 2])> {
        let (output, to_output) = OutputTail::open(OUTPUT_BYTES)?;
        let (errors, to_errors) = OutputTail::open(ERRORS_BYTES)?;
        Ok((Self { output, errors }, [to_output, to_errors]))
    }

    /// Reads the available output.
    pub(super) fn read_available(&mut self) {
        self.output.read_available();
        self.errors.read_available();
    }
}

impl OutputTail {
    fn open(bytes_max: usize) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        Ok((Self { reader, buffer: Vec::new(), bytes_max, has_new_line: false }, writer.into()))
    }

    fn read_available(&mut self) {
        let mut bytes = [0; 16 << 10];
        let mut read_bytes = 0;
        // Ends when no data is available, at the end of the stream, or on an error.
        while let Ok(length @ 1..) = self.reader.read(&mut bytes) {
            self.retain(&bytes[..length]);
            read_bytes += length;
            if read_bytes > READ_BYTES_MAX {
                break;
            }
        }
    }

    fn retain(&mut self, bytes: &[u8]) {
        self.has_new_line |= bytes.contains(&b'\n');
        self.buffer.extend_from_slice(bytes);
        // Truncated only at twice the size, so that few bytes are moved.
        if self.buffer.len() > 2 * self.bytes_max {
            self.buffer.drain(..self.buffer.len() - self.bytes_max);
        }
    }

    /// Returns the retained output as text, without control characters except line breaks.
    pub(super) fn text(&self) -> String {
        let retained = &self.buffer[self.buffer.len().saturating_sub(self.bytes_max)..];
        let text = String::from_utf8_lossy(retained);
        text.chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>().trim().to_owned()
    }

    /// Returns the last line that is neither empty nor a continuation of the line above it; if all
    /// are continuations, the last one.
    pub(super) fn last_line(&self) -> Option<String> {
        let text = self.text();
        let mut last = text.lines().rev().filter(|line| !line.trim().is_empty()).peekable();
        let any = last.peek().copied();
        last.find(|line| !is_continuation(line)).or(any).map(ToOwned::to_owned)
    }

    /// Returns [`Self::last_line`], truncated for display, if a line was completed since the last
    /// call; otherwise `None`.
    pub(super) fn take_new_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.has_new_line).then(|| self.last_line()).flatten()?;
        Some(line.chars().take(LINE_MAX).collect())
    }
}

/// Returns true if a line continues the one above it: it is indented or begins with an arrow.
fn is_continuation(line: &str) -> bool {
    line.starts_with([' ', '\u{2192}'])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn streams_of(text: &[u8]) -> StandardStreamTails {
        let (mut streams, [_, errors]) = StandardStreamTails::open().unwrap();
        let mut to = UnixStream::from(errors);
        to.set_nonblocking(true).unwrap();
        for part in text.chunks(1 << 12) {
            to.write_all(part).unwrap();
            streams.read_available();
        }
        streams
    }

    #[test]
    fn the_end_is_retained() {
        let mut streams = streams_of(b"one\n\x1b[1mtwo \xff\n\n");
        assert_eq!(streams.errors.text(), "one\n[1mtwo \u{fffd}");
        assert_eq!(streams.errors.take_new_line().as_deref(), Some("[1mtwo \u{fffd}"));
        assert_eq!(streams.errors.take_new_line(), None);
        assert_eq!(streams.output.last_line(), None);
    }

    #[test]
    fn what_goes_on_from_the_line_above_is_not_shown_alone() {
        let mut streams =
            streams_of("one\nwarning: two\n  and more\n  \u{2192} Look.\n".as_bytes());
        assert_eq!(streams.errors.take_new_line().as_deref(), Some("warning: two"));
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
