//! Separation of code and comments in Rust or C source, so that rules for code do not apply to
//! comments. It splits the text into tokens and does not parse it.

/// Two copies of a source text, one with the code and one with the comments; all else is blank, and
/// lines and columns are unchanged. Literals are in neither copy.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let mut source = Self {
            code: String::with_capacity(text.len()),
            comments: String::with_capacity(text.len()),
        };
        let mut rest = text;
        let mut previous = ' ';
        while let Some(first) = rest.chars().next() {
            let (kind, length) = token(rest, first, is_word(previous));
            let (token, tail) = rest.split_at(length.min(rest.len()));
            push(&mut source.code, token, kind == TokenKind::Code);
            push(&mut source.comments, token, kind == TokenKind::Comment);
            previous = token.chars().next_back().unwrap_or(' ');
            rest = tail;
        }
        source
    }
}

/// Returns true if `line` contains `word` as a separate word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    after_word(line, word).is_some()
}

/// Returns the text after the first `word` in `line` that is a separate word.
pub(crate) fn after_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.match_indices(word).find_map(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        let is_separate = !before.ends_with(is_word) && !after.starts_with(is_word);
        is_separate.then_some(after)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn push(copy: &mut String, token: &str, keep: bool) {
    if keep {
        copy.push_str(token);
    } else {
        copy.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
    }
}

/// Returns the kind of the first token of `rest`, and its length in bytes.
fn token(rest: &str, first: char, inside_word: bool) -> (TokenKind, usize) {
    if rest.starts_with("//") {
        return (TokenKind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (TokenKind::Comment, block_comment_length(rest));
    }
    if !inside_word && let Some(length) = raw_string_length(rest) {
        return (TokenKind::Literal, length);
    }
    match first {
        '"' => (TokenKind::Literal, quoted_length(rest, '"')),
        '\'' if is_character_literal(rest) => (TokenKind::Literal, quoted_length(rest, '\'')),
        _ => (TokenKind::Code, first.len_utf8()),
    }
}

/// Returns the length of a block comment. Comments nest in Rust; in C they do not, but no file of
/// the project has one inside another.
fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of `r"…"`, `r#"…"#`, `br"…"` or `cr"…"`; `None` for the raw identifier
/// `r#name`.
fn raw_string_length(rest: &str) -> Option<usize> {
    let unprefixed = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hashes = unprefixed.bytes().take_while(|byte| *byte == b'#').count();
    let body = unprefixed[hashes..].strip_prefix('"')?;
    let opening = rest.len() - body.len();
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&closing).map_or(rest.len(), |end| opening + end + closing.len()))
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns true for `'a'`, and false for the lifetime `'a`.
fn is_character_literal(rest: &str) -> bool {
    let mut after = rest.chars().skip(1);
    match after.next() {
        Some('\\') => true,
        Some(_) => after.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(code("a // b\nc"), "a c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a e");
        assert_eq!(code(r#"f("x // \" y", z)"#), "f( , z)");
        assert_eq!(code(r##"r#"x " y"# + br"a" + w"##), "+ + w");
        assert_eq!(code(r"('\'', '/', b'\\', z)"), "( , , b , z)");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) // y"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("r#type \"x\""), "r#type");
    }

    #[test]
    fn positions_are_unchanged() {
        let source = Source::new("let x = \"ä\n\"; // done\ny");
        assert_eq!(source.code.lines().count(), 3);
        assert_eq!(source.comments.lines().nth(1).map(str::trim), Some("// done"));
    }

    #[test]
    fn unterminated_text_ends_with_the_file() {
        for text in ["/* a", "\"a", "r#\"a\"", "'", "'\\"] {
            assert_eq!(Source::new(text).code.len(), Source::new(text).comments.len());
        }
    }

    #[test]
    fn substrings_do_not_match() {
        assert!(has_word("pub unsafe fn", "unsafe"));
        assert!(!has_word("allow(unsafe_code)", "unsafe"));
        assert_eq!(after_word("unsafe_code unsafe {", "unsafe"), Some(" {"));
    }
}
