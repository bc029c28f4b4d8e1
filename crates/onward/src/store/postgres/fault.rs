//! What goes wrong with a statement, and what that means for the write.
//!
//! Owns: the table from Postgres' codes to the store's errors. Never decides what a caller does
//! about it.

use std::error::Error as StdError;

use tokio_postgres::error::SqlState;

use crate::store::{Error, Outage};

/// Codes of the store's own functions.
const BATCH_REFUSED: &str = "OW001";
const WORKER_LOST: &str = "OW003";
const OLD_SNAPSHOT: &str = "OW004";
const TRANSACTION_ENDED: &str = "OW005";
/// Not `OW006`, by which the functions for users refuse what they are given.
const HISTORY_LOST: &str = "OW007";

/// The tables whose rows only a repeated write finds there.
const OF_BATCHES: [&str; 5] = ["records", "outputs", "attempts", "runs", "inputs"];

/// How often what lost against another transaction is made again at once: more than two that meet
/// again by chance.
pub(super) const AGAIN_MAX: u32 = 8;

/// Why a verb did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The verb refused before it wrote anything.
    Refused(Error),
    /// The transaction lost against another and was undone: the same again may succeed at once.
    Again(String),
    /// The batch as a whole was refused and undone: its writes are made one by one.
    OneByOne,
    /// A body ended the transaction that was the step's to end.
    TransactionEnded,
    /// The database does not answer or does not take writes; the outcome may be unknown.
    Outage(Outage, String),
    /// This write or the rows it met are bad.
    Data(Box<dyn StdError + Send + Sync>),
}

impl Fault {
    /// A stored value that cannot be read.
    pub(super) fn data(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Fault::Data(source.into())
    }

    /// The database did not answer.
    pub(super) fn no_answer(why: impl Into<String>) -> Self {
        Fault::Outage(Outage::NoAnswer, why.into())
    }
}

impl Clone for Fault {
    /// For each caller of a batch that failed as one.
    fn clone(&self) -> Self {
        match self {
            Fault::Refused(Error::LeaseLost) => Fault::Refused(Error::LeaseLost),
            Fault::Refused(Error::HistoryLost) => Fault::Refused(Error::HistoryLost),
            Fault::Refused(error) => Fault::data(error.to_string()),
            Fault::Again(why) => Fault::Again(why.clone()),
            Fault::OneByOne => Fault::OneByOne,
            Fault::TransactionEnded => Fault::TransactionEnded,
            Fault::Outage(outage, why) => Fault::Outage(*outage, why.clone()),
            Fault::Data(source) => Fault::data(source.to_string()),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            // A value that cannot be sent or read is the data's fault, not the connection's.
            let bad_value = error.source().is_some_and(|source| !source.is::<std::io::Error>());
            return match bad_value && !error.is_closed() {
                true => Fault::Data(Box::new(error)),
                false => Fault::no_answer(error.to_string()),
            };
        };
        let why = format!("{} ({})", db.message(), db.code().code());
        match db.code().code() {
            BATCH_REFUSED => Fault::OneByOne,
            // A group commit asks for no row whether it is there, which it hardly ever is.
            "23505" if db.table().is_some_and(|name| OF_BATCHES.contains(&name)) => Fault::OneByOne,
            WORKER_LOST => Fault::Refused(Error::LeaseLost),
            OLD_SNAPSHOT => Fault::no_answer(why),
            TRANSACTION_ENDED => Fault::TransactionEnded,
            HISTORY_LOST => Fault::Refused(Error::HistoryLost),
            // Of what a server failed at in itself only a commit may succeed when it is made again.
            "XX000" if !db.message().contains("commit") => Fault::data(why),
            // An error that a body passed over, after which nothing more is done.
            "25P02" => Fault::data(why),
            _ => match outage(db.code()) {
                Some(Met::Again) => Fault::Again(why),
                Some(Met::Outage(outage)) => Fault::Outage(outage, why),
                None => Fault::data(why),
            },
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Again(why) => Error::Unavailable(Outage::NoAnswer, why.into()),
            Fault::OneByOne => Error::Corrupt("the batch was refused".into()),
            Fault::TransactionEnded => Error::Corrupt("the transaction was ended".into()),
            Fault::Outage(outage, why) => Error::Unavailable(outage, why.into()),
            Fault::Data(source) => Error::Corrupt(source),
        }
    }
}

enum Met {
    Again,
    Outage(Outage),
}

/// What a code tells of the server; `None` when the data is at fault.
fn outage(code: &SqlState) -> Option<Met> {
    let outage = match code.code() {
        // Two that add the same row at once: the loser finds it there.
        "40001" | "40P01" | "23505" => return Some(Met::Again),
        "53100" => Outage::Full,
        "25006" => Outage::ReadOnly,
        "55P03" => Outage::Locked,
        // The schema or a table of it is not there, or not ours to use: somebody is working on it.
        "42P01" | "42883" | "3F000" | "42501" => Outage::NoAnswer,
        // The server failed in itself, as one does that cannot commit while it is demoted. What is damaged
        // has codes of its own.
        "XX000" => Outage::NoAnswer,
        code => match &code[..2] {
            // Connections, authorisation, resources, operators, the system, a lost transaction.
            "08" | "28" | "3D" | "53" | "57" | "58" | "25" => Outage::NoAnswer,
            _ => return None,
        },
    };
    Some(Met::Outage(outage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_of_the_store_is_one_of_its_functions_for_users() {
        let raised = |sql: &str, code| sql.contains(&format!("errcode = '{code}'"));
        for code in [BATCH_REFUSED, WORKER_LOST, OLD_SNAPSHOT, TRANSACTION_ENDED, HISTORY_LOST] {
            for sql in [include_str!("sql/start_sql.sql"), include_str!("sql/signal.sql")] {
                assert!(!raised(sql, code), "{code}");
            }
        }
        assert!(raised(include_str!("sql/transact.sql"), HISTORY_LOST));
    }

    #[test]
    fn a_server_that_failed_in_itself_is_an_outage_and_damaged_data_is_not() {
        let is_outage = |code| matches!(outage(&SqlState::from_code(code)), Some(Met::Outage(_)));
        assert!(is_outage("XX000"));
        assert!(!is_outage("XX001") && !is_outage("XX002"));
    }
}
