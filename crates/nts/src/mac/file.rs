//! Key files as chrony (`chrony.keys`) and ntpd (`ntp.keys`) have them: one key a line, of
//! identifier, type and key. No message repeats a key.

use thiserror::Error;
use zeroize::Zeroizing;

use super::{Key, KeyFault, MacAlgorithm};
use crate::secret::hex_value;

/// Up to how many characters a key without prefix is always text, for ntpd as for chrony.
const TEXT_LEN_MAX: usize = 20;

/// A key file that cannot be used. What it may hold, a line each: nothing, a comment (`#`, `%`, `;`
/// or `!` in front), or
///
/// ```text
/// IDENTIFIER TYPE KEY      # comment
/// ```
///
/// The identifier is a number from 1 to 4,294,967,295, the type one of AES128, AES256, SHA1,
/// SHA256, SHA384, SHA512. The key is `HEX:` and hexadecimal digits, or `ASCII:` and text. Without
/// such a prefix it is hexadecimal where that alone gives the length that the type takes, or where
/// it has more than 20 characters, all of them hexadecimal digits (as ntpd has it); text otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}: {fault}")]
pub struct KeyFileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: KeyFileFault,
}

/// What is wrong with a line of a key file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KeyFileFault {
    /// Not three words.
    #[error("{0} words; write an identifier, a type and a key")]
    WordCount(usize),
    /// The first word is no identifier.
    #[error("the identifier is not a number from 1 to 4294967295")]
    BadId,
    /// MD5, whose digests can be forged.
    #[error("MD5 is not supported (RFC 8573): make a key of type AES128 or SHA256")]
    Md5,
    /// The second word is no type.
    #[error("unknown type; write AES128, AES256, SHA1, SHA256, SHA384 or SHA512")]
    BadType,
    /// `HEX:` is not followed by pairs of hexadecimal digits.
    #[error("HEX: takes pairs of hexadecimal digits")]
    BadHex,
    /// The key does not fit its type.
    #[error("{0}")]
    BadKey(KeyFault),
    /// The identifier was there before.
    #[error("key {id} was already given in line {first}; remove one of the two")]
    Twice {
        /// The identifier.
        id: u32,
        /// The line of the first key with it.
        first: usize,
    },
}

pub(super) fn parse(text: &str) -> Result<Vec<Key>, KeyFileError> {
    let mut keys = Vec::new();
    let mut lines_by_id = std::collections::HashMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let Some(key) = parse_line(text).map_err(|fault| KeyFileError { line, fault })? else {
            continue;
        };
        let id = key.id();
        if let Some(first) = lines_by_id.insert(id, line) {
            return Err(KeyFileError { line, fault: KeyFileFault::Twice { id, first } });
        }
        keys.push(key);
    }
    Ok(keys)
}

fn parse_line(line: &str) -> Result<Option<Key>, KeyFileFault> {
    let line = line.trim();
    if line.starts_with(['#', '%', ';', '!']) {
        return Ok(None);
    }
    let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
    let words: Vec<&str> = words.collect();
    let &[id, kind, key] = words.as_slice() else {
        return if words.is_empty() { Ok(None) } else { Err(word_count(&words)) };
    };
    let id = id.parse().ok().filter(|id| *id > 0).ok_or(KeyFileFault::BadId)?;
    if is_md5(kind) {
        return Err(KeyFileFault::Md5);
    }
    let algorithm = MacAlgorithm::from_name(kind).ok_or(KeyFileFault::BadType)?;
    let bytes = key_bytes(key, algorithm)?;
    Key::new(id, algorithm, &bytes).map(Some).map_err(KeyFileFault::BadKey)
}

/// chrony reads a line of two words as a key of type MD5.
fn word_count(words: &[&str]) -> KeyFileFault {
    match words {
        [id, key] if id.parse::<u32>().is_ok() && MacAlgorithm::from_name(key).is_none() => {
            KeyFileFault::Md5
        }
        _ => KeyFileFault::WordCount(words.len()),
    }
}

fn is_md5(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("MD5") || kind.eq_ignore_ascii_case("M")
}

fn key_bytes(key: &str, algorithm: MacAlgorithm) -> Result<Zeroizing<Vec<u8>>, KeyFileFault> {
    if let Some(digits) = key.strip_prefix("HEX:") {
        return hex(digits).ok_or(KeyFileFault::BadHex);
    }
    if let Some(text) = key.strip_prefix("ASCII:") {
        return Ok(Zeroizing::new(text.as_bytes().to_vec()));
    }
    let as_text = || Zeroizing::new(key.as_bytes().to_vec());
    let Some(bytes) = hex(key) else { return Ok(as_text()) };
    let is_hex = match algorithm.key_len() {
        Some(len) => key.len() != len,
        None => key.len() > TEXT_LEN_MAX,
    };
    Ok(if is_hex { bytes } else { as_text() })
}

fn hex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |pair: &[u8]| pair.iter().fold(0, |value, digit| value << 4 | hex_value(*digit));
    Some(Zeroizing::new(digits.chunks(2).map(byte).collect()))
}
