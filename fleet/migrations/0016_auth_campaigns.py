from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0015_owners_of_alerting'),
    ]

    operations = [
        migrations.AddField(
            model_name='campaignagent',
            name='new_auth',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='campaignagent',
            name='via',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
    ]
