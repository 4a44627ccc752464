//! Parser of the commands on a page of the documentation, block by block. A block is indented by
//! four spaces or fenced. A block with a line that begins with a known program is a block of
//! commands: after the prompts if it has any, otherwise on each line. All other blocks are data or
//! output, in which no line may look like a command.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

const REPOSITORY: &str = env!("HOROLOG_REPOSITORY");
const INDENT: &str = "    ";
const FENCE: &str = "```";
/// Fence languages of blocks of shell commands.
const SHELLS: &[&str] = &["sh", "shell", "bash", "console"];
/// First words of command lines. A missing one is reported if other lines of its block are known.
const PROGRAMS: &[&str] = &[
    "(umask",
    "apt",
    "apt-get",
    "cargo",
    "chrt",
    "cp",
    "curl",
    "cyclictest",
    "dpkg",
    "echo",
    "editor",
    "export",
    "git",
    "horolog",
    "install",
    "ip",
    "make",
    "nats-server",
    "ntpperf",
    "openssl",
    "ping",
    "pmc",
    "podman",
    "printf",
    "promtool",
    "qperf",
    "sockperf",
    "sudo",
    "systemctl",
    "until",
];

/// Page with its blocks and the names in its text.
pub(crate) struct Page {
    pub(crate) blocks: Vec<Block>,
    /// Words between backticks in the text, with their lines.
    pub(crate) spans: Vec<Documented>,
}

/// Block without its indentation.
pub(crate) enum Block {
    Commands(Vec<Documented>),
    /// File or output, verbatim.
    Data(String),
}

/// Documented command or name, with its line number.
#[derive(Clone, Debug)]
pub(crate) struct Documented {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Returns the names of all pages: README.md, CONTRIBUTING.md and docs/*.md, sorted.
pub(crate) fn names() -> Result<Vec<String>> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in fs::read_dir(path("docs")).context("no documentation")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_page = Path::new(&name).extension().is_some_and(|ending| ending == "md");
        names.extend(is_page.then(|| format!("docs/{name}")));
    }
    names.sort();
    Ok(names)
}

/// Returns the path of a file of the repository.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(REPOSITORY).join(name)
}

impl Page {
    pub(crate) fn read(name: &str) -> Result<Self> {
        let text = fs::read_to_string(path(name)).with_context(|| format!("no {name}"))?;
        Self::parse(name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut page = Self { blocks: Vec::new(), spans: Vec::new() };
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        let mut prose = Vec::new();
        while at < lines.len() {
            let (kind, end) = block_at(&lines, at);
            let here = at;
            at = end;
            let Some(shell) = kind else {
                prose.push((here, lines[here]));
                continue;
            };
            let fenced = lines[here].starts_with(FENCE);
            let inside = if fenced { here + 1..end - 1 } else { here..end };
            let body: Vec<Documented> = inside
                .map(|at| Documented {
                    line: at + 1,
                    text: lines[at]
                        .strip_prefix(INDENT)
                        .filter(|_| !fenced)
                        .unwrap_or(lines[at])
                        .to_owned(),
                })
                .collect();
            page.blocks
                .push(classify(&body, shell).with_context(|| format!("{name}:{}", here + 1))?);
        }
        page.spans = code_spans(&prose);
        Ok(page)
    }

    /// Returns the first block of data that begins with `begins`.
    pub(crate) fn data(&self, begins: &str) -> Option<&str> {
        self.blocks.iter().find_map(|block| match block {
            Block::Data(text) if text.starts_with(begins) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(crate) fn commands(&self) -> impl Iterator<Item = &Documented> {
        self.blocks.iter().flat_map(|block| match block {
            Block::Commands(commands) => commands.as_slice(),
            Block::Data(_) => &[],
        })
    }
}

/// Returns the kind of the block that begins at a line, and the line after the block. The kind is
/// `None` for text, and true for shell commands.
fn block_at(lines: &[&str], at: usize) -> (Option<bool>, usize) {
    if let Some(language) = lines[at].strip_prefix(FENCE) {
        let inside = lines[at + 1..].iter().position(|line| line.starts_with(FENCE));
        let end = inside.map_or(lines.len(), |inside| at + inside + 2);
        return (Some(SHELLS.contains(&language)), end);
    }
    let begins = lines[at].starts_with(INDENT) && (at == 0 || lines[at - 1].is_empty());
    if !begins {
        return (None, at + 1);
    }
    let mut end = at;
    for (here, line) in lines.iter().enumerate().skip(at) {
        if line.starts_with(INDENT) {
            end = here + 1;
        } else if !line.is_empty() {
            break;
        }
    }
    (Some(false), end)
}

/// Returns the line after its prompt (`$ ` or `HOST$ `); `None` without a prompt.
fn strip_prompt(line: &str) -> Option<&str> {
    let (prompt, rest) = line.split_once('$')?;
    let is_prompt = prompt.chars().all(char::is_alphanumeric) && rest.starts_with(' ');
    is_prompt.then(|| rest.trim_start())
}

fn is_command(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(|first| PROGRAMS.contains(&first))
}

fn classify(body: &[Documented], shell: bool) -> Result<Block> {
    let body = join_continuations(body);
    let prompted: Vec<Documented> = body
        .iter()
        .filter_map(|line| Some(Documented { text: strip_prompt(&line.text)?.to_owned(), ..*line }))
        .collect();
    if let Some(unknown) = prompted.iter().find(|line| !is_command(&line.text)) {
        bail!("line {}: unknown program in '{}'", unknown.line, unknown.text);
    }
    if !prompted.is_empty() {
        return Ok(Block::Commands(prompted));
    }
    if !shell && !body.iter().any(|line| is_command(&line.text)) {
        let lines = body.iter().map(|line| format!("{}\n", line.text));
        return Ok(Block::Data(lines.collect()));
    }
    let commands: Vec<Documented> = body
        .into_iter()
        .filter(|line| !line.text.is_empty() && !line.text.starts_with('#'))
        .collect();
    if let Some(unknown) = commands.iter().find(|line| !is_command(&line.text)) {
        bail!("line {}: unknown program in '{}', among commands", unknown.line, unknown.text);
    }
    ensure!(!commands.is_empty(), "a block for a shell without a command");
    Ok(Block::Commands(commands))
}

/// Joins lines that end in a backslash with their continuations.
fn join_continuations(body: &[Documented]) -> Vec<Documented> {
    let mut all: Vec<Documented> = Vec::new();
    let mut continued = false;
    for line in body {
        let (text, more) = match line.text.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (line.text.as_str(), false),
        };
        match all.last_mut().filter(|_| continued) {
            Some(last) => last.text = format!("{} {}", last.text.trim_end(), text.trim()),
            None => all.push(Documented { line: line.line, text: text.to_owned() }),
        }
        continued = more;
    }
    all
}

/// Returns the texts between backticks, which may span lines.
fn code_spans(prose: &[(usize, &str)]) -> Vec<Documented> {
    let mut spans = Vec::new();
    let mut open: Option<Documented> = None;
    for &(at, line) in prose {
        if line.is_empty() {
            open = None;
        }
        for (number, part) in line.split('`').enumerate() {
            if number > 0 {
                match open.take() {
                    Some(span) => spans.push(span),
                    None => open = Some(Documented { line: at + 1, text: String::new() }),
                }
            }
            if let Some(span) = &mut open {
                let gap = if span.text.is_empty() || number > 0 { "" } else { " " };
                span.text = format!("{}{gap}{}", span.text, part.trim_start());
            }
        }
    }
    spans
}

/// Blocks of commands, data and text are recognised.
pub(crate) fn blocks_are_classified() -> Result<()> {
    let text = "Text with `horolog\nserve --local` in it.\n\n    horolog one \\\n        --two   # three\n\n    \
                make four\n\nand\n\n    a = 1\n\n```\n$ horolog five\noutput\n```\n\nend\n";
    let page = Page::parse("page.md", text)?;
    let commands: Vec<_> = page.commands().map(|one| (one.line, one.text.as_str())).collect();
    let expected = [(4, "horolog one --two   # three"), (7, "make four"), (14, "horolog five")];
    // Indented lines with blank lines between them are one block in Markdown.
    ensure!(Page::parse("page.md", "\n    horolog one\n    two\n").is_err());
    ensure!(Page::parse("page.md", "```sh\ntwo\n```\n").is_err());
    ensure!(
        page.spans.len() == 1 && page.spans[0].text == "horolog serve --local",
        "{:?}",
        page.spans
    );
    ensure!(commands == expected, "{commands:?}");
    Ok(())
}
