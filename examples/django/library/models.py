"""Books with their covers."""

from django.db import models


class Book(models.Model):
    title = models.CharField(max_length=100)
    cover = models.FileField(upload_to="covers")

    def __str__(self):
        return self.title
