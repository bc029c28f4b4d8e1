//! As much of Postgres's protocol as the proxy needs: where messages end, which statements a
//! client sends, and which of the server's answers belongs to which.
//!
//! Owns: the two halves of one connection's conversation. A *batch* is what a client sends up to a
//! `Sync` or as one `Query`; the server answers each with one `ReadyForQuery`, in order, so that
//! counting both sides is enough to pair them.

use std::collections::{HashMap, VecDeque};

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// The bytes that open every message after the first: its type and its length.
const HEAD_BYTES: usize = 5;

/// What the client sends.
#[derive(Debug, Default)]
pub(super) struct Questions {
    buffer: Vec<u8>,
    started: bool,
    /// The statements that it prepared, by their name.
    prepared: HashMap<String, String>,
    /// The text of the batches that are not answered yet, the one that is being sent last.
    batches: VecDeque<String>,
    /// Answers of a single byte that the server owes before the conversation starts.
    bare_answers: usize,
}

impl Questions {
    /// Takes what the client sent.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        while let Some(message) = self.next_message() {
            self.take(&message);
        }
    }

    fn next_message(&mut self) -> Option<Vec<u8>> {
        let head = if self.started { HEAD_BYTES } else { HEAD_BYTES - 1 };
        let length = number(self.buffer.get(head - 4..head)?) as usize + head - 4;
        (self.buffer.len() >= length).then(|| self.buffer.drain(..length).collect())
    }

    fn take(&mut self, message: &[u8]) {
        if !self.started {
            match message.get(4..8).map(number) {
                Some(SSL_REQUEST | GSS_REQUEST) => self.bare_answers += 1,
                _ => {
                    self.started = true;
                    // The server answers the startup itself as if it were a batch.
                    self.batches.extend([String::new(), String::new()]);
                }
            }
            return;
        }
        let body = &message[HEAD_BYTES..];
        match message[0] {
            b'Q' => {
                self.say(&text(body).0);
                self.batches.push_back(String::new());
            }
            b'P' => {
                let (name, rest) = text(body);
                let (statement, _) = text(&body[rest..]);
                self.prepared.insert(name, statement);
            }
            b'B' => {
                let (_, rest) = text(body);
                let (name, _) = text(&body[rest..]);
                let statement = self.prepared.get(&name).cloned().unwrap_or_default();
                self.say(&statement);
            }
            b'S' => self.batches.push_back(String::new()),
            _ => {}
        }
    }

    fn say(&mut self, statement: &str) {
        if let Some(batch) = self.batches.back_mut() {
            batch.push_str(statement);
            batch.push('\n');
        }
    }

    /// The batch whose answer comes next.
    fn asked(&self) -> &str {
        self.batches.front().map_or("", String::as_str)
    }
}

/// What the server answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    buffer: Vec<u8>,
    /// What was executed since the connection was last idle.
    transaction: String,
    failed: bool,
}

/// A message of the server, with what it means.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// What the transaction has executed, this message's batch included.
    pub(super) transaction: String,
    pub(super) place: Place,
}

/// Where in the conversation a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Inside the answer to a batch, or between batches.
    Within,
    /// At the end of a batch, with the transaction still open.
    Open,
    /// At the end of a batch, with nothing open: what it executed is committed.
    Committed,
    /// At the end of a batch that failed, with nothing open.
    Failed,
}

impl Answers {
    /// Takes what the server sent; gives the messages that are whole.
    pub(super) fn read(&mut self, bytes: &[u8], questions: &mut Questions) -> Vec<Message> {
        self.buffer.extend_from_slice(bytes);
        std::iter::from_fn(|| self.next(questions)).collect()
    }

    fn next(&mut self, questions: &mut Questions) -> Option<Message> {
        if questions.bare_answers > 0 && !self.buffer.is_empty() {
            questions.bare_answers -= 1;
            let bytes = self.buffer.drain(..1).collect();
            return Some(Message { bytes, transaction: String::new(), place: Place::Within });
        }
        let length = number(self.buffer.get(1..HEAD_BYTES)?) as usize + 1;
        if self.buffer.len() < length {
            return None;
        }
        let bytes: Vec<u8> = self.buffer.drain(..length).collect();
        let mut transaction = format!("{}{}", self.transaction, questions.asked());
        self.failed |= bytes[0] == b'E';
        let place = match (bytes[0], bytes.last()) {
            (b'Z', Some(b'I')) if self.failed => Place::Failed,
            (b'Z', Some(b'I')) => Place::Committed,
            (b'Z', _) => Place::Open,
            _ => Place::Within,
        };
        if place != Place::Within {
            questions.batches.pop_front();
        }
        match place {
            Place::Within => {}
            Place::Open => self.transaction.clone_from(&transaction),
            Place::Committed | Place::Failed => {
                self.transaction.clear();
                self.failed = false;
            }
        }
        if bytes[0] == b'A' {
            // A notice of another's commit answers nothing.
            transaction.clear();
        }
        Some(Message { bytes, transaction, place })
    }
}

/// A number of the protocol: four bytes, the highest first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}

/// A text that ends with a zero byte, and where the next one begins.
fn text(bytes: &[u8]) -> (String, usize) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), (end + 1).min(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn startup() -> Vec<u8> {
        [&9_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), &[0]].concat()
    }

    fn ready(status: u8) -> Vec<u8> {
        message(b'Z', &[status])
    }

    /// A conversation that has started and is idle.
    fn idle() -> (Questions, Answers) {
        let (mut questions, mut answers) = (Questions::default(), Answers::default());
        questions.read(&startup());
        let places = places(&mut answers, &mut questions, &ready(b'I'));
        assert_eq!(places, [(Place::Committed, String::new())]);
        (questions, answers)
    }

    fn places(
        answers: &mut Answers,
        questions: &mut Questions,
        bytes: &[u8],
    ) -> Vec<(Place, String)> {
        let read = answers.read(bytes, questions);
        read.into_iter().map(|message| (message.place, message.transaction)).collect()
    }

    #[test]
    fn answer_is_paired_with_its_own_batch_however_far_the_client_is_ahead() {
        let (mut questions, mut answers) = idle();
        questions.read(&message(b'Q', b"select 1\0"));
        questions.read(&message(b'P', b"s1\0insert into t\0\0\0"));
        questions.read(&message(b'B', b"\0s1\0"));
        questions.read(&message(b'S', b""));
        let both = [ready(b'I'), ready(b'I')].concat();
        assert_eq!(
            places(&mut answers, &mut questions, &both),
            [
                (Place::Committed, "select 1\n".to_owned()),
                (Place::Committed, "insert into t\n".to_owned()),
            ]
        );
    }

    #[test]
    fn transaction_is_committed_at_its_end_and_knows_all_it_executed() {
        let (mut questions, mut answers) = idle();
        for statement in ["begin\0", "insert\0", "commit\0"] {
            questions.read(&message(b'Q', statement.as_bytes()));
        }
        let all = [ready(b'T'), ready(b'T'), ready(b'I')].concat();
        let read = places(&mut answers, &mut questions, &all);
        let ends: Vec<_> = read.iter().map(|(place, _)| *place).collect();
        assert_eq!(ends, [Place::Open, Place::Open, Place::Committed]);
        assert_eq!(read[2].1, "begin\ninsert\ncommit\n");
    }

    #[test]
    fn failed_batch_is_not_taken_for_committed() {
        let (mut questions, mut answers) = idle();
        questions.read(&message(b'Q', b"insert\0"));
        let failed = [message(b'E', b"\0"), ready(b'I')].concat();
        let read = places(&mut answers, &mut questions, &failed);
        assert_eq!(read[1].0, Place::Failed);
        questions.read(&message(b'Q', b"insert\0"));
        assert_eq!(places(&mut answers, &mut questions, &ready(b'I'))[0].0, Place::Committed);
    }

    #[test]
    fn messages_cut_anywhere_are_put_together() {
        let (mut questions, mut answers) = (Questions::default(), Answers::default());
        let asked = [startup(), message(b'Q', b"select 1\0")].concat();
        asked.iter().for_each(|byte| questions.read(&[*byte]));
        let answered = [ready(b'I'), message(b'D', b"row"), ready(b'I')].concat();
        let mut read = Vec::new();
        for byte in answered {
            read.extend(places(&mut answers, &mut questions, &[byte]));
        }
        assert_eq!(read.len(), 3);
        assert_eq!(read[2], (Place::Committed, "select 1\n".to_owned()));
    }

    #[test]
    fn refusal_of_encryption_is_a_single_byte() {
        let (mut questions, mut answers) = (Questions::default(), Answers::default());
        questions.read(&[8_u32.to_be_bytes(), SSL_REQUEST.to_be_bytes()].concat());
        assert_eq!(answers.read(b"N", &mut questions)[0].bytes, b"N");
        questions.read(&startup());
        assert_eq!(places(&mut answers, &mut questions, &ready(b'I'))[0].0, Place::Committed);
    }
}
