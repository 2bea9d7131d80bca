"""Keep chats in a table of SQLAlchemy: each run adds a row, and the rows are the history of the next run."""

from sqlalchemy import Text, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from models import says
from turnwise import Agent, messages_from_json


class Base(DeclarativeBase):
    pass


class ChatRow(Base):
    __tablename__ = "chat_rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    chat: Mapped[str] = mapped_column(index=True)
    messages: Mapped[str] = mapped_column(Text)


agent = Agent(says("Hello, Ada.", "Hello, Bob.", "Your name is Ada."))
engine = create_engine("sqlite://")  # in memory; a URL like `postgresql+psycopg://...` keeps it
Base.metadata.create_all(engine)


def answer(chat: str, prompt: str) -> str:
    with Session(engine) as session:
        rows = session.scalars(select(ChatRow.messages).where(ChatRow.chat == chat).order_by(ChatRow.id))
        history = messages_from_json(rows)
    result = agent.run_sync(prompt, history=history)
    text = result.text  # raises if the provider failed: then no row is added
    with Session(engine) as session, session.begin():
        session.add(ChatRow(chat=chat, messages=result.new_history_json()))
    return f"{chat}: {text} ({len(history)} messages before)"


print(answer("first", "My name is Ada."))
print(answer("second", "My name is Bob."))
print(answer("first", "What is my name?"))
