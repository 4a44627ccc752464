//! Framing of gpsd's own reports, one JSON object a line, between the sentences that it passes on.
//! Pure.

/// Maximum length of a line of gpsd, in characters (its manual page `gpsd_json`).
const LINE_MAX: usize = 10_240;

/// Assembler of lines, character by character.
#[derive(Clone, Default, Debug)]
pub(super) struct ReportLines {
    /// Received part of a report; empty outside of one.
    line: Vec<u8>,
}

impl ReportLines {
    /// Takes a character, and returns the report that it ends. One that is too long is skipped.
    pub(super) fn take(&mut self, byte: u8) -> Option<Vec<u8>> {
        if self.line.is_empty() && byte != b'{' {
            return None;
        }
        if byte == b'\n' {
            return Some(std::mem::take(&mut self.line));
        }
        self.line.push(byte);
        if self.line.len() > LINE_MAX {
            self.line = Vec::new();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(bytes: &[u8]) -> Vec<String> {
        let mut lines = ReportLines::default();
        let taken = bytes.iter().filter_map(|byte| lines.take(*byte));
        taken.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    #[test]
    fn reports_are_found_between_sentences() {
        let bytes = b"$GPZDA,1*00\r\n{\"class\":\"TPV\"}\r\n$GPRMC,2*00\r\n{\"class\":\"SKY\"}\n{";
        assert_eq!(reports(bytes), ["{\"class\":\"TPV\"}\r", "{\"class\":\"SKY\"}"]);
    }

    #[test]
    fn a_line_that_never_ends_is_discarded() {
        let mut bytes = b"{".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', LINE_MAX));
        bytes.extend(b"\n{\"a\":1}\n");
        assert_eq!(reports(&bytes), ["{\"a\":1}"]);
    }
}
