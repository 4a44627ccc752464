//! Framing of the JSON reports of gpsd, one a line, between the sentences that it forwards. Pure.

/// Longest report in bytes (gpsd_json(5)).
const LINE_MAX: usize = 10_240;

/// Assembler of report lines, byte by byte.
#[derive(Clone, Default, Debug)]
pub(super) struct ReportFramer {
    /// Received part of a report; empty outside of one.
    line: Vec<u8>,
}

impl ReportFramer {
    /// Processes a byte; returns the report that it completes. An overlong report is skipped.
    pub(super) fn push_byte(&mut self, byte: u8) -> Option<Vec<u8>> {
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
        let mut lines = ReportFramer::default();
        let taken = bytes.iter().filter_map(|byte| lines.push_byte(*byte));
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
