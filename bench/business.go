package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"gorm.io/gorm"
)

// The business that all sides do: an account and its ledger. Accounts are many,
// so that nobody waits for a row.
const (
	accountCount = 2000
	accounts     = `CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL) ENGINE = InnoDB`
	ledger       = `CREATE TABLE ledger (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, account INT NOT NULL,
	amount BIGINT NOT NULL, ref VARBINARY(64) NOT NULL) ENGINE = InnoDB`
	credit = "UPDATE accounts SET balance = balance + ? WHERE id = ?"
	enter  = "INSERT INTO ledger (account, amount, ref) VALUES (?, ?, ?)"
)

var fillAccounts = func() string {
	rows := make([]string, accountCount)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, 0)", i)
	}
	return "INSERT INTO accounts (id, balance) VALUES " + strings.Join(rows, ", ")
}()

// payment is a message's body.
type payment struct {
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
	Ref     string `json:"ref"`
	Note    string `json:"note"`
}

// note makes a body of about 300 bytes.
const note = "paid by transfer; the usual text that a shop puts into its messages, so that a body has the size that bodies have: " +
	"names of things bought, an address, a remark of the customer's, and so on until it is long enough for that."

func newPayment(n int64, ref string) payment {
	return payment{Account: int(n % accountCount), Amount: n%100 + 1, Ref: ref, Note: note}
}

func (p payment) body() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has nothing that could fail
	}
	return b
}

// book is the consumer's two statements, by gorm.
func book(tx *gorm.DB, body []byte) error {
	var p payment
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	if err := tx.Exec(enter, p.Account, p.Amount, p.Ref).Error; err != nil {
		return err
	}
	return tx.Exec(credit, p.Amount, p.Account).Error
}

// pay is the sender's one statement, by gorm; paySQL is the same by hand.
func pay(tx *gorm.DB, p payment) error { return tx.Exec(credit, p.Amount, p.Account).Error }

func paySQL(ctx context.Context, tx *sql.Tx, p payment) error {
	_, err := tx.ExecContext(ctx, credit, p.Amount, p.Account)
	return err
}
