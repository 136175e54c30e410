//! [`Unprepared`]: a statement that is sent with the types of its parameters, so that the server need not have prepared it.

use bytes::BytesMut;
use tokio_postgres::types::{ToSql, Type};

/// The types of the parameters of all statements. No value of this crate can be sent as two of them.
const TYPES: [Type; 14] = [
    Type::INT8,
    Type::TEXT,
    Type::UUID,
    Type::BYTEA,
    Type::BOOL,
    Type::INT4,
    Type::INT2,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT2_ARRAY,
    Type::BOOL_ARRAY,
    Type::TEXT_ARRAY,
    Type::UUID_ARRAY,
    Type::BYTEA_ARRAY,
];

/// A statement, and the types of its parameters, which are the same each time.
#[derive(Debug)]
pub(super) struct Unprepared {
    pub(super) sql: String,
    types: Vec<Type>,
}

impl Unprepared {
    pub(super) fn new(sql: String, params: &[&(dyn ToSql + Sync)]) -> Self {
        let types = params.iter().map(|param| type_of(*param)).collect();
        Self { sql, types }
    }

    /// Returns parameters with their types.
    pub(super) fn typed<'p>(
        &self,
        params: &[&'p (dyn ToSql + Sync)],
    ) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
        params
            .iter()
            .copied()
            .zip(self.types.iter().cloned())
            .collect()
    }
}

/// Returns the type as which a value can be sent. For a value of any other type, the request fails.
fn type_of(param: &(dyn ToSql + Sync)) -> Type {
    let is_type = |ty: &&Type| param.to_sql_checked(ty, &mut BytesMut::new()).is_ok();
    TYPES.iter().find(is_type).cloned().unwrap_or(Type::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_value_has_one_type() {
        let values: [(&(dyn ToSql + Sync), Type); 16] = [
            (&1_i64, Type::INT8),
            (&None::<i64>, Type::INT8),
            (&1_i32, Type::INT4),
            (&1_i16, Type::INT2),
            (&true, Type::BOOL),
            (&"text", Type::TEXT),
            (&None::<String>, Type::TEXT),
            (&b"bytes".as_slice(), Type::BYTEA),
            (&Vec::<u8>::new(), Type::BYTEA),
            (&Uuid::nil(), Type::UUID),
            (&vec![1_i64], Type::INT8_ARRAY),
            (&vec![1_i16], Type::INT2_ARRAY),
            (&vec![true], Type::BOOL_ARRAY),
            (&Vec::<Option<String>>::new(), Type::TEXT_ARRAY),
            (&vec![Uuid::nil()], Type::UUID_ARRAY),
            (&vec![None::<Vec<u8>>], Type::BYTEA_ARRAY),
        ];
        for (value, expected) in values {
            let accepts = |ty: &&Type| value.to_sql_checked(ty, &mut BytesMut::new()).is_ok();
            let types: Vec<_> = TYPES.iter().filter(accepts).collect();
            assert_eq!(types, [&expected], "{value:?}");
            assert_eq!(type_of(value), expected);
        }
        assert_eq!(type_of(&1.5_f64), Type::UNKNOWN);
    }
}
